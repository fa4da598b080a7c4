"""Weights quantised at load: floats become the file types Q8_0 and Q4_1, as llama.cpp's quantiser would make them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import numpy as np

import headway._native as _native
from headway.core.errors import ModelError
from headway.model.spec import Architecture, Checkpoint, ModelSpec, RawTensor, Weight

Mode = Literal["none", "int8", "int4"]

FLOATS = ("F32", "F16", "BF16")
_GROUP = 32  # weights that share a scale
_LINEARS = frozenset(("q", "k", "v", "o", "gate", "up", "down"))
_ENDS = frozenset(("embed", "head"))  # 8 bits suffice and are needed: their error meets every choice


def type_at(mode: Mode, weight: Weight) -> str:
    """The type a weight has once it is quantised. Norms, biases, rows that are no whole groups, and what is quantised
    already stay as they are."""
    tensor = weight.tensor
    if mode == "none" or tensor.type not in FLOATS or tensor.shape[1] % _GROUP or weight.role.endswith("_bias"):
        return tensor.type
    if weight.role in _ENDS:
        return "Q8_0"
    if weight.role.partition(".")[0] in _LINEARS:  # an expert's have its number behind them
        return "Q8_0" if mode == "int8" else "Q4_1"
    return tensor.type


def quantised(mode: Mode, weights: Iterator[Weight]) -> Iterator[Weight]:
    """The weights, each of the type that `type_at` says."""
    for weight in weights:
        tensor, to = weight.tensor, type_at(mode, weight)
        if to != tensor.type:
            rows, columns = tensor.shape
            data = _native.quantise(tensor.type, rows, columns, tensor.data, to).reshape(rows, -1)
            tensor = RawTensor(to, tensor.shape, data)
        yield Weight(weight.role, weight.layer, tensor)


def nothing_to_quantise(mode: Mode, path: Path) -> ModelError:
    return ModelError(f"engine.quantize = {mode}: no weights of {path} are F32, F16 or BF16 matrices")


class Exact:
    """An architecture whose weights are all F32: what its files say, to the last bit."""

    def __init__(self, architecture: Architecture) -> None:
        self._architecture = architecture

    def spec(self, checkpoint: Checkpoint, context: int | None = None) -> ModelSpec:
        return self._architecture.spec(checkpoint, context)

    def weights(self, checkpoint: Checkpoint, spec: ModelSpec) -> Iterator[Weight]:
        for weight in self._architecture.weights(checkpoint, spec):
            tensor = weight.tensor
            rows, columns = tensor.shape
            data = _native.dequantise(tensor.type, rows, columns, tensor.data).view(np.uint8).reshape(rows, -1)
            yield Weight(weight.role, weight.layer, RawTensor("F32", tensor.shape, data))
