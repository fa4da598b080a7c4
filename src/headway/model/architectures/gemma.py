"""Gemma 2 and 3 (text part): norms before and after, scaled embeddings, GELU, soft caps, windows by turns."""

from functools import partial

from headway.model.architectures.decoder import Decoder
from headway.model.architectures.family import Layout, Sizes
from headway.model.architectures.names import HF_POST_NORMS
from headway.model.architectures.text_part import text_part_of
from headway.model.architectures.windows import by_turns, windows_by_type
from headway.model.fields import Fields
from headway.model.spec import Scales

_GEMMA2_27B, _GEMMA3_27B = 46, 62  # their layers, by which llama.cpp tells that scores are scaled otherwise


def _period(fields: Fields, usual: int) -> int:
    return fields.integer("attention.sliding_window_pattern", usual) or usual


def _gemma2_windows(fields: Fields, layout: Layout, layers: int) -> tuple[int, ...]:
    if layout == "gguf":
        return by_turns(layers, _period(fields, 2), fields.integer("attention.sliding_window", 4096))
    window = fields.integer("sliding_window", 0 if fields.states("sliding_window") else 4096)
    return windows_by_type(fields, layers, window) if "layer_types" in fields else by_turns(layers, 2, window)


def _gemma3_windows(fields: Fields, layout: Layout, layers: int) -> tuple[int, ...]:
    if layout == "gguf":
        return by_turns(layers, _period(fields, 6), fields.integer("attention.sliding_window", 0))
    window = fields.integer("sliding_window", 0 if fields.states("sliding_window") else 4096)
    if "layer_types" in fields:
        return windows_by_type(fields, layers, window)
    return by_turns(layers, fields.integer("sliding_window_pattern", 6) or 6, window)


def _score_divisor(fields: Fields, layout: Layout, sizes: Sizes, largest: int) -> float:
    if layout == "gguf":
        return sizes.hidden / sizes.heads if sizes.layers == largest else sizes.head_dim
    divisor = fields.number("query_pre_attn_scalar", 256)
    if divisor <= 0:
        raise fields.fail(f"query_pre_attn_scalar must be > 0, not {divisor}")
    return divisor


def _gemma2_scales(fields: Fields, layout: Layout, sizes: Sizes) -> Scales:
    def cap(name: str, default: float) -> float:
        if layout == "gguf":
            return fields.number(name, default)
        return fields.number(name, 0 if fields.states(name) else default)

    return Scales(
        attention=_score_divisor(fields, layout, sizes, _GEMMA2_27B) ** -0.5,
        embedding=sizes.hidden**0.5,
        attention_cap=cap("attn_logit_softcapping", 50.0),
        logit_cap=cap("final_logit_softcapping", 30.0),
    )


def _gemma3_scales(fields: Fields, layout: Layout, sizes: Sizes) -> Scales:
    if fields.flag("use_bidirectional_attention", False):
        raise fields.fail("use_bidirectional_attention is not supported")
    return Scales(
        attention=_score_divisor(fields, layout, sizes, _GEMMA3_27B) ** -0.5,
        embedding=sizes.hidden**0.5,
        attention_cap=fields.number("attn_logit_softcapping", 0),
        logit_cap=fields.number("final_logit_softcapping", 0),
    )


def _local_base(fields: Fields, layout: Layout) -> float:
    if layout == "gguf":
        return fields.number("rope.freq_base_swa", 10000.0)
    local = fields.section("rope_parameters").section("sliding_attention")
    if local.text("rope_type", "default") != "default":
        raise fields.fail("rope_parameters: a scaling of sliding_attention is not supported")
    return local.number("rope_theta", fields.number("rope_local_base_freq", 10000.0))


GEMMA2 = Decoder(
    names=("gemma2",),
    windows=_gemma2_windows,
    scales=_gemma2_scales,
    post_norms=True,
    norm_offset=1.0,
    activation=("hidden_activation", "gelu_pytorch_tanh"),
    gate="gelu",
    tied=True,
    hf_names=HF_POST_NORMS,
)
# The config.json of the models with images says little about the text part.
_TEXT_DEFAULTS = {
    "vocab_size": 262208,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000000.0,
}

GEMMA3 = Decoder(
    names=("gemma3", "gemma3_text"),
    view=partial(text_part_of, defaults=_TEXT_DEFAULTS),
    windows=_gemma3_windows,
    scales=_gemma3_scales,
    local_base=_local_base,
    head_norms="head",
    post_norms=True,
    norm_offset=1.0,
    activation=("hidden_activation", "gelu_pytorch_tanh"),
    gate="gelu",
    tied=True,
    hf_names=HF_POST_NORMS,
)
