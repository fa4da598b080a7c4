"""How the K and V of a model's layers share blocks, and what those take of memory."""

from collections import Counter
from dataclasses import dataclass

import headway._native as _native
from headway.model.spec import ModelSpec

KV_TYPES = {"f16": _native.KvType.F16, "int8": _native.KvType.INT8}  # by engine.kv_type
_MOST_GROUPS = 8  # each costs a table per sequence


@dataclass(frozen=True, slots=True)
class LayerGroups:
    """Layers by the block tables they use. Blocks are of equal size, so that one pool serves all groups."""

    layers: tuple[tuple[int, ...], ...]  # of each group
    windows: tuple[int, ...]  # of each group: keys its layers see at most; 0: all

    @property
    def size(self) -> int:
        """Layers that a block has room for."""
        return max(map(len, self.layers))


def layer_groups(spec: ModelSpec, context: int) -> LayerGroups:
    """Layers of equal window together, in groups of a size that leaves little of the blocks unused: above all of those
    that stay, of the layers that see all. Windows that no sequence of `context` tokens outgrows hide nothing."""
    by_window: dict[int, list[int]] = {}
    for layer, window in enumerate(spec.windows):
        by_window.setdefault(window if window < context else 0, []).append(layer)

    def room(size: int) -> tuple[int, int]:  # blocks' layers, those that stay counted twice; the fewest groups
        groups = {window: -(-len(layers) // size) for window, layers in by_window.items()}
        many = sum(groups.values())
        return (size * (many + groups.get(0, 0)) if many <= max(_MOST_GROUPS, len(groups)) else 1 << 30, -size)

    size = min(range(1, spec.layers + 1), key=room)
    parts = [
        (window, tuple(layers[i : i + size]))
        for window, layers in sorted(by_window.items())
        for i in range(0, len(layers), size)
    ]
    return LayerGroups(tuple(layers for _, layers in parts), tuple(window for window, _ in parts))


def layer_bytes(spec: ModelSpec, kv_type: str) -> int:
    """Of `_native.BLOCK` tokens in one layer."""
    return spec.kv_heads * _native.kv_head_bytes(KV_TYPES[kv_type], spec.head_dim)


def span_bytes(spec: ModelSpec, kv_type: str) -> tuple[tuple[int, int], ...]:
    """Of one token, by attention span (0: all): in all layers with that span."""
    layer = layer_bytes(spec, kv_type) // _native.BLOCK
    return tuple((span, layers * layer) for span, layers in sorted(Counter(spec.windows).items()))
