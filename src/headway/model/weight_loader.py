"""Brings a model's weights into the native core: quantised if wanted, packed, and from disk where they were before."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import headway._native as _native
from headway.core.config import EngineSettings
from headway.model.fingerprint import fingerprint
from headway.model.packed_weights import find_or_make, key_of
from headway.model.quantised import nothing_to_quantise, quantised, type_at
from headway.model.source import cache_folder
from headway.model.spec import Architecture, Checkpoint, ModelSpec, RawTensor, Weight

_NOTHING: NDArray[np.uint8] = np.empty(0, np.uint8)


def load_weights(
    core: _native.Core, checkpoint: Checkpoint, architecture: Architecture, spec: ModelSpec, settings: EngineSettings
) -> str:
    """Loads every weight and returns the model's fingerprint. Raises ModelError and what the core raises."""
    mode = settings.quantize
    weights = partial(architecture.weights, checkpoint, spec)
    noted: list[Weight] = []  # vectors, and matrices without their data
    digest = fingerprint(spec, _note(weights(), settings, noted), mode)
    if mode != "none" and all(type_at(mode, w) == w.tensor.type for w in weights()):
        raise nothing_to_quantise(mode, checkpoint.path)
    packed = (
        _packed(core, checkpoint.path, digest, noted, quantised(mode, weights())) if settings.weights_cache else None
    )
    if packed is None:
        for weight in quantised(mode, weights()):
            _load(core, weight, weight.tensor.data)
        return digest
    at = 0
    for weight in noted:
        if is_matrix(weight):
            size = _packed_bytes(weight)
            _load(core, weight, None, packed[at : at + size])
            at += size
        else:
            _load(core, weight, weight.tensor.data)
    return digest


def _note(weights: Iterator[Weight], settings: EngineSettings, noted: list[Weight]) -> Iterator[Weight]:
    for weight in weights:
        tensor = weight.tensor
        if is_matrix(weight):
            tensor = RawTensor(type_at(settings.quantize, weight), tensor.shape, _NOTHING)
        noted.append(Weight(weight.role, weight.layer, tensor))
        yield weight


def _packed(
    core: _native.Core, model: Path, digest: str, noted: list[Weight], weights: Iterator[Weight]
) -> memoryview | None:
    """All matrices of `noted` in their order; `weights`, with their data, are read only where they must be packed."""
    size = sum(_packed_bytes(weight) for weight in noted if is_matrix(weight))
    matrices = (
        _native.pack(weight.tensor.type, *weight.tensor.shape, weight.tensor.data)
        for weight in weights
        if is_matrix(weight)
    )
    return find_or_make(cache_folder() / "weights", key_of(model, digest, core.isa), size, matrices)


def is_matrix(weight: Weight) -> bool:
    """Whether it is packed; else it is a vector: a norm or a bias."""
    return weight.tensor.shape[0] > 1


def _packed_bytes(weight: Weight) -> int:
    return _native.packed_bytes(weight.tensor.type, *weight.tensor.shape)


def _load(core: _native.Core, weight: Weight, data: NDArray[np.uint8] | None, packed: memoryview | None = None) -> None:
    core.load(weight.role, weight.layer, weight.tensor.type, *weight.tensor.shape, data, packed)
