"""Qwen1.5-MoE and Qwen2-MoE: experts, beside a feed-forward that every row takes through a gate of its own."""

from headway.model.architectures.decoder import Decoder
from headway.model.architectures.family import Layout
from headway.model.architectures.mixture import experts_of_gguf, experts_of_qwen
from headway.model.architectures.qwen2 import qwen2_biases, qwen_windows
from headway.model.fields import Fields
from headway.model.spec import Experts


def _biases(config: Fields) -> tuple[str, ...]:
    return qwen2_biases(config) if config.flag("qkv_bias", True) else ()


def _experts(fields: Fields, layout: Layout) -> tuple[Experts, int] | None:
    if layout == "gguf":
        return experts_of_gguf(fields, renormalise=False, shared_gate=True)
    return experts_of_qwen(fields, shared_gate=True)


def _windows(fields: Fields, layout: Layout, layers: int) -> tuple[int, ...]:
    if layout == "hf" and fields.flag("use_sliding_window", False) and "layer_types" not in fields:
        raise fields.fail("use_sliding_window without layer_types is not supported")
    return qwen_windows(fields, layout, layers)


QWEN2_MOE = Decoder(
    names=("qwen2moe", "qwen2_moe"),
    windows=_windows,
    biases=_biases,
    experts=_experts,
    gguf_names={
        "gate": "ffn_gate_shexp",
        "up": "ffn_up_shexp",
        "down": "ffn_down_shexp",
        "shared_router": "ffn_gate_inp_shexp",
    },
    hf_names={
        "gate": "mlp.shared_expert.gate_proj",
        "up": "mlp.shared_expert.up_proj",
        "down": "mlp.shared_expert.down_proj",
        "shared_router": "mlp.shared_expert_gate",
    },
)
