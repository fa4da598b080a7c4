"""A short name for a model as it is computed, so that equal names mean equal tokens."""

from collections.abc import Iterable
from dataclasses import fields
from hashlib import blake2b

from headway.model.spec import ModelSpec, Weight

# To be counted up with every change of the kernels that changes a bit of their results.
KERNELS = 2

_SAMPLES = 64
_SAMPLE_BYTES = 256


def fingerprint(spec: ModelSpec, weights: Iterable[Weight], quantize: str = "none") -> str:
    """16 hex digits of the model's dimensions, of every weight's place, type and shape, of evenly spaced samples of its
    bytes, and of what it is quantised to.

    Samples, since hashing gigabytes would delay every start; two checkpoints that differ only between the samples are
    told apart by nothing else here.
    """
    digest = blake2b(repr(KERNELS).encode(), digest_size=8)
    for field in fields(spec):
        value = getattr(spec, field.name)
        digest.update(value.tobytes() if field.name == "inv_freq" else repr((field.name, value)).encode())
    if quantize != "none":
        digest.update(quantize.encode())
    for weight in weights:
        tensor = weight.tensor
        digest.update(repr((weight.role, weight.layer, tensor.type, tensor.shape)).encode())
        flat = tensor.data.reshape(-1)
        step = max(_SAMPLE_BYTES, flat.size // _SAMPLES)
        for start in range(0, flat.size, step):
            digest.update(flat[start : start + _SAMPLE_BYTES].tobytes())
    return digest.hexdigest()
