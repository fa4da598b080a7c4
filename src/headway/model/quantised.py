"""Weights quantised at load: floats become the file types Q8_0 and Q4_1, as llama.cpp's quantiser would make them."""

from collections.abc import Iterator
from typing import Literal

import headway._native as _native
from headway.model.spec import RawTensor, Weight

Mode = Literal["none", "int8", "int4"]

FLOATS = ("F32", "F16", "BF16")
_GROUP = 32  # weights that share a scale
_LINEARS = frozenset(("q", "k", "v", "o", "gate", "up", "down"))
_ENDS = frozenset(("embed", "head"))  # 8 bits suffice and are needed: their error meets every choice


def type_at(mode: Mode, weight: Weight) -> str:
    """The type a weight has once it is quantised. Norms, biases, rows that are no whole groups, and what is quantised
    already stay as they are."""
    tensor = weight.tensor
    if mode == "none" or tensor.type not in FLOATS or tensor.shape[1] % _GROUP:
        return tensor.type
    if weight.role in _ENDS:
        return "Q8_0"
    if weight.role in _LINEARS:
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
