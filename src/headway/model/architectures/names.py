"""What a tensor of each role is called in either kind of checkpoint."""

import re
from collections.abc import Mapping
from types import MappingProxyType

_GGUF = {
    "embed": "token_embd",
    "head": "output",
    "final_norm": "output_norm",
    "attn_norm": "attn_norm",
    "q": "attn_q",
    "k": "attn_k",
    "v": "attn_v",
    "o": "attn_output",
    "sinks": "attn_sinks",
    "q_norm": "attn_q_norm",
    "k_norm": "attn_k_norm",
    "ffn_norm": "ffn_norm",
    "gate": "ffn_gate",
    "up": "ffn_up",
    "down": "ffn_down",
    "attn_post_norm": "post_attention_norm",
    "ffn_post_norm": "post_ffw_norm",
    "router": "ffn_gate_inp",
    "gate.": "ffn_gate_exps",  # of all experts, one after the other
    "up.": "ffn_up_exps",
    "down.": "ffn_down_exps",
}
_HF = {
    "embed": "model.embed_tokens",
    "head": "lm_head",
    "final_norm": "model.norm",
    "attn_norm": "input_layernorm",
    "q": "self_attn.q_proj",
    "k": "self_attn.k_proj",
    "v": "self_attn.v_proj",
    "o": "self_attn.o_proj",
    "sinks": "self_attn.sinks",
    "q_norm": "self_attn.q_norm",
    "k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "gate": "mlp.gate_proj",
    "up": "mlp.up_proj",
    "down": "mlp.down_proj",
    "router": "mlp.gate",
    "gate.": "mlp.experts.{}.gate_proj",
    "up.": "mlp.experts.{}.up_proj",
    "down.": "mlp.experts.{}.down_proj",
}
# Where a norm follows the attention, it has the name that Llama gives to the one before the feed-forward.
HF_POST_NORMS = {
    "attn_post_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "ffn_post_norm": "post_feedforward_layernorm",
}
# Frequencies some files keep although they follow from the metadata; `rope_...` are read by rope.py.
_HARMLESS = re.compile(
    r"(.*\.)?(rotary_emb\.inv_freq|attn_rot_embd\.weight)|rope_freqs\.weight|rope_factors_(long|short)\.weight"
)


def tensor_name(layout: str, role: str, layer: int, renamed: Mapping[str, str] = MappingProxyType({})) -> str:
    """The name of `role` (a Weight's) in a "gguf" or "hf" checkpoint; `layer` is -1 for the global ones."""
    bias = role.endswith("_bias")
    plain, dot, expert = role.removesuffix("_bias").partition(".")
    stem = (renamed.get(plain + dot) or (_GGUF if layout == "gguf" else _HF)[plain + dot]).format(expert)
    if layer >= 0:
        stem = f"blk.{layer}.{stem}" if layout == "gguf" else f"model.layers.{layer}.{stem}"
    return stem + (".bias" if bias else ".weight")


def changes_nothing(name: str) -> bool:
    """Whether an unexpected tensor of this name may be left aside."""
    return _HARMLESS.fullmatch(name) is not None
