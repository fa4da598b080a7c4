"""A short name for a set of weights, so that equal names mean equal tokens."""

from collections.abc import Iterable
from hashlib import blake2b

from headway.model.spec import Weight

_SAMPLES = 64
_SAMPLE_BYTES = 256


def weights_fingerprint(weights: Iterable[Weight]) -> str:
    """16 hex digits of every weight's place, type and shape, and of evenly spaced samples of its bytes.

    Samples, since hashing gigabytes would delay every start; two checkpoints that differ only between the samples are
    told apart by nothing else here.
    """
    digest = blake2b(digest_size=8)
    for weight in weights:
        tensor = weight.tensor
        digest.update(repr((weight.role, weight.layer, tensor.type, tensor.shape)).encode())
        flat = tensor.data.reshape(-1)
        step = max(_SAMPLE_BYTES, flat.size // _SAMPLES)
        for start in range(0, flat.size, step):
            digest.update(flat[start : start + _SAMPLE_BYTES].tobytes())
    return digest.hexdigest()
