"""Rotary frequencies with every scaling applied, from config.json or GGUF metadata.

The reference is transformers' modeling_rope_utils; numbers are computed in double precision and rounded once, so they
do not depend on the machine's vector pow.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headway.model.architectures.family import Family
from headway.model.fields import Fields
from headway.model.spec import Checkpoint, floats

Frequencies = NDArray[np.float64]  # [head_dim / 2], radians per position


@dataclass(frozen=True, slots=True)
class Rope:
    inv_freq: NDArray[np.float32]  # [rotated / 2]: of a head's first `rotated` dimensions, mostly all
    scale: float  # multiplies cos and sin
    context: int  # positions the scaling is meant for


@dataclass(frozen=True, slots=True)
class Yarn:
    """Parameters of "YaRN: Efficient Context Window Extension" (Peng et al. 2023). `original`: trained positions."""

    factor: float
    original: int
    beta_fast: float
    beta_slow: float
    truncate: bool = True

    def scaled(self, plain: Frequencies, base: float) -> Frequencies:
        """Fast dimensions keep their frequency, slow ones are interpolated, those between are blended."""
        dims = 2 * len(plain)

        def turning(rotations: float) -> float:  # the dimension that turns so often within the original context
            return dims * math.log(self.original / (rotations * 2 * math.pi)) / (2 * math.log(base))

        low, high = turning(self.beta_fast), turning(self.beta_slow)
        if self.truncate:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, dims - 1)
        width = high - low if high != low else 0.001
        slow = np.clip((np.arange(len(plain)) - low) / width, 0, 1)
        return np.asarray(plain / self.factor * slow + plain * (1 - slow))


def magnitude(factor: float, mscale: float = 1.0) -> float:
    """YaRN's attention factor: what cos and sin grow by when positions are stretched by `factor`."""
    return 1.0 if factor <= 1 else 0.1 * mscale * math.log(factor) + 1.0


def plain_frequencies(base: float, head_dim: int) -> Frequencies:
    """Those of unscaled rotation (Su et al. 2021)."""
    return np.asarray(base ** (np.arange(0, -head_dim, -2, dtype=np.float64) / head_dim))


def longrope_magnitude(factor: float, original: int) -> float:
    """LongRoPE's attention factor ("LongRoPE", Ding et al. 2024) for positions stretched by `factor`."""
    return 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(original))


def rope_of(
    checkpoint: Checkpoint,
    fields: Fields,
    family: Family,
    head_dim: int,
    context: int,
    served: int,
) -> Rope:
    """The rotary part of either kind of checkpoint; ModelError for a scaling Headway does not compute.

    `served`: the longest sequence that will be. LongRoPE's factors depend on it, and not on each sequence's length, so
    that a token's value never depends on how long its sequence will become.
    """
    if checkpoint.layout == "gguf":
        return _rope_of_gguf(checkpoint, fields, family, head_dim, context, served)
    # Older files have rope_scaling beside rope_theta, newer ones rope_parameters with rope_theta inside.
    rope = fields.section("rope_scaling" if "rope_scaling" in fields else "rope_parameters")
    if family.local_base and "full_attention" in rope:
        rope = rope.section("full_attention")
    return _rope_of_config(fields, rope, head_dim, context, served, family.partial)


def _rope_of_config(config: Fields, rope: Fields, head_dim: int, context: int, served: int, partial: bool) -> Rope:
    part = rope.number("partial_rotary_factor", config.number("partial_rotary_factor", 1.0))
    if part != 1 and not (partial and 0 < part < 1):
        raise config.fail("partial_rotary_factor other than 1 is not supported")
    rotated = int(head_dim * part)
    if "full_attention" in rope or "sliding_attention" in rope:
        raise config.fail("rope_parameters that differ by layer type are not supported")
    base = rope.number("rope_theta", config.number("rope_theta", 10000.0))
    plain = plain_frequencies(base, rotated)
    kind = rope.text("rope_type", rope.text("type", "default"))
    original = config.integer(
        "original_max_position_embeddings", rope.integer("original_max_position_embeddings", context)
    )
    if kind == "default":
        return _rope(plain, context)
    if kind == "linear":
        return _rope(plain / _factor(rope, "factor"), context)
    if kind == "dynamic":
        # Frequencies change with the length only beyond the trained context; ours ends there, so that a token's
        # value never depends on how long its sequence will become.
        return _rope(plain, context)
    if kind == "llama3":
        return _rope(_llama3(rope, plain, original), context)
    if kind == "yarn":
        return _yarn_of_config(rope, plain, base, original, context)
    if kind in ("longrope", "su"):
        return _longrope_of_config(rope, plain, original, context, served)
    raise config.fail(f"rope scaling {kind} is not supported (default, linear, dynamic, llama3, yarn and longrope are)")


def _llama3(rope: Fields, plain: Frequencies, original: int) -> Frequencies:
    factor = _factor(rope, "factor")
    low, high = rope.number("low_freq_factor"), rope.number("high_freq_factor")
    if not high > low:
        raise rope.fail(f"high_freq_factor {high} must exceed low_freq_factor {low}")
    turns = original * plain / (2 * math.pi)  # within the original context
    smooth = np.clip((turns - low) / (high - low), 0, 1)
    return np.asarray((1 - smooth) * plain / factor + smooth * plain)


def _yarn_of_config(rope: Fields, plain: Frequencies, base: float, original: int, context: int) -> Rope:
    factor = _factor(rope, "factor") if "factor" in rope else context / original
    yarn = Yarn(
        factor,
        original,
        rope.number("beta_fast", 0) or 32,
        rope.number("beta_slow", 0) or 1,
        rope.flag("truncate", True),
    )
    mscale, mscale_all = rope.number("mscale", 0), rope.number("mscale_all_dim", 0)
    if "attention_factor" in rope:
        scale = rope.number("attention_factor")
    elif mscale and mscale_all:
        scale = magnitude(factor, mscale) / magnitude(factor, mscale_all)
    else:
        scale = magnitude(factor)
    # Some files state the trained context, some the stretched one.
    return _rope(yarn.scaled(plain, base), max(context, int(original * factor)), scale)


def _longrope_of_config(rope: Fields, plain: Frequencies, original: int, context: int, served: int) -> Rope:
    key = "long_factor" if served > original else "short_factor"
    divisors = rope.numbers(key)
    if len(divisors) != len(plain) or min(divisors) <= 0:
        raise rope.fail(f"{key} must be {len(plain)} numbers > 0, for each pair of rotated dimensions")
    # Phi-3's files state no factor; its models take the ratio of the two contexts.
    scale = rope.number("attention_factor", longrope_magnitude(rope.number("factor", context / original), original))
    return _rope(plain / np.asarray(divisors), context, scale)


def _rope_of_gguf(
    checkpoint: Checkpoint, fields: Fields, family: Family, head_dim: int, context: int, served: int
) -> Rope:
    rotated = fields.integer("rope.dimension_count", head_dim)
    if rotated != head_dim and not (family.partial and 0 < rotated < head_dim and rotated % 2 == 0):
        raise fields.fail(f"rope.dimension_count must be the head size {head_dim}: rotating a part is not supported")
    base = fields.number("rope.freq_base", 10000.0)
    plain = plain_frequencies(base, rotated)
    if checkpoint.has("rope_factors_long.weight"):
        original = fields.integer("rope.scaling.original_context_length", context)
        name = f"rope_factors_{'long' if served > original else 'short'}.weight"
        scale = fields.number("rope.scaling.attn_factor", longrope_magnitude(context / original, original))
        return _rope(plain / _frequency_divisors(checkpoint, fields, name, rotated), context, scale)
    if checkpoint.has("rope_freqs.weight"):  # where llama3's scaling is kept
        plain = plain / _frequency_divisors(checkpoint, fields, "rope_freqs.weight", rotated)
    factor = fields.number("rope.scaling.factor", fields.number("rope.scale_linear", 0)) or 1.0
    kind = fields.text("rope.scaling.type", "linear")
    if kind == "none":
        return _rope(plain, context)
    if kind == "linear":
        return _rope(plain / factor, context)
    if kind == "yarn":
        return _yarn_of_gguf(fields, plain, base, factor, context, family.yarn_rounds)
    raise fields.fail(f"rope.scaling.type {kind} is not supported (none, linear and yarn are)")


def _yarn_of_gguf(fields: Fields, plain: Frequencies, base: float, factor: float, context: int, rounds: bool) -> Rope:
    if fields.number("rope.scaling.yarn_ext_factor", 1.0) != 1.0:
        raise fields.fail("rope.scaling.yarn_ext_factor other than 1 is not supported")
    yarn = Yarn(
        factor,
        fields.integer("rope.scaling.original_context_length", context),
        fields.number("rope.scaling.yarn_beta_fast", 32),
        fields.number("rope.scaling.yarn_beta_slow", 1),
        rounds,
    )
    # yarn_attn_factor is config.json's attention_factor as the converter wrote it down; attn_factor is a further
    # multiplier, and yarn_log_multiplier is mscale_all_dim beside an mscale of 1.
    mscale_all = fields.number("rope.scaling.yarn_log_multiplier", 0)
    if "rope.scaling.yarn_attn_factor" in fields:
        scale = fields.number("rope.scaling.yarn_attn_factor")
    else:
        scale = magnitude(factor) / (magnitude(factor, mscale_all) if mscale_all else 1.0)
    return _rope(yarn.scaled(plain, base), context, scale * fields.number("rope.scaling.attn_factor", 1.0))


def _frequency_divisors(checkpoint: Checkpoint, fields: Fields, name: str, rotated: int) -> Frequencies:
    tensor = checkpoint.tensor(name)
    if tensor.type != "F32" or tensor.shape != (1, rotated // 2):
        raise fields.fail(f"{name} is {tensor.type} {tensor.shape}, not F32 {(1, rotated // 2)}")
    return np.asarray(floats(tensor)[0], np.float64)


def _factor(rope: Fields, key: str) -> float:
    factor = rope.number(key)
    if factor < 1:
        raise rope.fail(f"{key} must be at least 1, not {factor}")
    return factor


def _rope(frequencies: Frequencies, context: int, scale: float = 1.0) -> Rope:
    return Rope(frequencies.astype(np.float32), scale, context)
