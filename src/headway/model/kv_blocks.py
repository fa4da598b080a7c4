"""What keys and values take of memory."""

from collections import Counter

import headway._native as _native
from headway.model.spec import ModelSpec

KV_TYPES = {"f16": _native.KvType.F16, "int8": _native.KvType.INT8}  # by engine.kv_type


def block_bytes(spec: ModelSpec, kv_type: str) -> int:
    """Of one block, `_native.BLOCK` tokens, in all layers."""
    return spec.layers * spec.kv_heads * _native.kv_head_bytes(KV_TYPES[kv_type], spec.head_dim)


def span_bytes(spec: ModelSpec, kv_type: str) -> tuple[tuple[int, int], ...]:
    """Of one token, by attention span (0: all): in all layers with that span."""
    layer = block_bytes(spec, kv_type) // spec.layers // _native.BLOCK
    return tuple((span, layers * layer) for span, layers in sorted(Counter(spec.windows).items()))
