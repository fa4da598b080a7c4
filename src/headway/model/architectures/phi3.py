"""Phi-3, Phi-3.5, Phi-4 and Phi-4-mini: q, k, v and gate, up in one tensor each; LongRoPE on a part of each head."""

from headway.model.architectures.decoder import Decoder
from headway.model.architectures.family import Layout
from headway.model.fields import Fields

_FUSED = {"qkv": ("q", "k", "v"), "gate_up": ("gate", "up")}


def _windows(fields: Fields, layout: Layout, layers: int) -> tuple[int, ...]:
    return (fields.integer("sliding_window" if layout == "hf" else "attention.sliding_window", 0),) * layers


def _biases(config: Fields) -> tuple[str, ...]:
    return ()


PHI3 = Decoder(
    names=("phi3",),
    windows=_windows,
    biases=_biases,
    partial=True,
    fused=_FUSED,
    gguf_names={"qkv": "attn_qkv", "gate_up": "ffn_up"},
    hf_names={"qkv": "self_attn.qkv_proj", "gate_up": "mlp.gate_up_proj"},
)
