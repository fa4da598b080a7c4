"""What a model's files hold, and what it will take of memory, without loading it."""

from dataclasses import asdict, dataclass
from pathlib import Path

import headway._native as _native
from headway.core.config import EngineSettings
from headway.model.architectures.registry import architecture_of
from headway.model.checkpoint import open_checkpoint
from headway.model.kv_blocks import layer_bytes
from headway.model.quantised import nothing_to_quantise, type_at
from headway.model.weight_loader import is_matrix


@dataclass(frozen=True, slots=True)
class TypeUse:
    """Of one type: tensors, and weights in them."""

    tensors: int = 0
    weights: int = 0

    def plus(self, weights: int) -> "TypeUse":
        return TypeUse(self.tensors + 1, self.weights + weights)


@dataclass(frozen=True, slots=True)
class Inspection:
    """Sizes in bytes but where the name says otherwise."""

    path: str
    family: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    tied: bool
    context: int  # tokens
    windows: tuple[int, ...]  # the spans of layers that do not see all tokens
    weights: int  # number of them
    stored: dict[str, TypeUse]  # by type
    computed: dict[str, TypeUse]  # the same once engine.quantize is applied
    weight_bytes: int  # of the matrices as they are packed
    kv_type: str
    kv_bytes_per_token: int
    kv_tokens: int  # that engine.kv_memory_mb holds

    def as_json(self) -> dict[str, object]:
        return asdict(self)


def inspect_model(path: Path, settings: EngineSettings) -> Inspection:
    """ModelError for what cannot be served."""
    checkpoint = open_checkpoint(path)
    try:
        architecture = architecture_of(checkpoint)
        spec = architecture.spec(checkpoint)
        stored: dict[str, TypeUse] = {}
        computed: dict[str, TypeUse] = {}
        packed = 0
        for weight in architecture.weights(checkpoint, spec):
            rows, columns = weight.tensor.shape
            becomes = type_at(settings.quantize, weight)
            for uses, type_ in ((stored, weight.tensor.type), (computed, becomes)):
                uses[type_] = uses.get(type_, TypeUse()).plus(rows * columns)
            packed += _native.packed_bytes(becomes, rows, columns) if is_matrix(weight) else 0
    finally:
        checkpoint.close()
    if settings.quantize != "none" and stored == computed:
        raise nothing_to_quantise(settings.quantize, path)
    per_block = spec.layers * layer_bytes(spec, settings.kv_type)
    return Inspection(
        path=str(path),
        family=spec.architecture,
        layers=spec.layers,
        hidden=spec.hidden,
        heads=spec.heads,
        kv_heads=spec.kv_heads,
        head_dim=spec.head_dim,
        ffn=spec.ffn,
        vocab=spec.vocab,
        tied=spec.tied,
        context=spec.context,
        windows=tuple(sorted({window for window in spec.windows if window})),
        weights=sum(use.weights for use in stored.values()),
        stored=stored,
        computed=computed,
        weight_bytes=packed,
        kv_type=settings.kv_type,
        kv_bytes_per_token=per_block // _native.BLOCK,
        kv_tokens=(settings.kv_memory_mb << 20) // per_block * _native.BLOCK,
    )
