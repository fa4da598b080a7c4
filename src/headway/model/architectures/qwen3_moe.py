"""Qwen3-MoE: Qwen3 with experts only."""

from headway.model.architectures.decoder import Decoder
from headway.model.architectures.family import Layout
from headway.model.architectures.mixture import experts_of_gguf, experts_of_qwen
from headway.model.architectures.qwen3 import qwen3_biases
from headway.model.fields import Fields
from headway.model.spec import Experts


def _experts(fields: Fields, layout: Layout) -> tuple[Experts, int] | None:
    if layout == "gguf":
        return experts_of_gguf(fields, renormalise=True)
    return experts_of_qwen(fields, shared_gate=False)


def _windows(fields: Fields, layout: Layout, layers: int) -> tuple[int, ...]:
    if layout == "gguf":
        return (fields.integer("attention.sliding_window", 0),) * layers
    return (fields.integer("sliding_window", 4096) if fields.flag("use_sliding_window", False) else 0,) * layers


QWEN3_MOE = Decoder(
    names=("qwen3moe", "qwen3_moe"), windows=_windows, biases=qwen3_biases, experts=_experts, head_norms="head"
)
