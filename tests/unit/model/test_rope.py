"""Rotary scalings against transformers 5.24 (ROPE_INIT_FUNCTIONS, head size 16, theta 10000, 256 positions)."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headway.core.errors import ModelError
from headway.model.architectures.family import Family
from headway.model.architectures.rope import Rope, rope_of
from headway.model.fields import Fields
from headway.model.spec import RawTensor

PLAIN = [1.0, 0.31622776, 0.1, 0.031622779, 0.0099999998, 0.0031622779, 0.001, 0.00031622779]
LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
YARN_FREQUENCIES = [1.0, 0.23717082, 0.05, 0.0079056947, 0.0025, 0.00079056947, 0.00025, 7.9056947e-05]


class Bare:
    """A checkpoint of metadata and perhaps a tensor or two."""

    path = Path("bare")

    def __init__(self, layout: str, **factors: list[float]) -> None:
        self.layout, self._factors = layout, factors

    def has(self, name: str) -> bool:
        return name.removesuffix(".weight") in self._factors

    def tensor(self, name: str) -> RawTensor:
        data = np.array([self._factors[name.removesuffix(".weight")]], np.float32)
        return RawTensor("F32", data.shape, data.view(np.uint8))


def of_config(config: Mapping[str, Any], served: int = 256, partial: bool = False) -> Rope:
    return rope_of(Bare("hf"), Fields(Path("bare"), config), Family((), partial=partial), 16, 256, served)  # type: ignore[arg-type]


def of_gguf(entries: Mapping[str, Any], served: int = 256, partial: bool = False, **factors: list[float]) -> Rope:
    fields = Fields(Path("bare"), {f"llama.rope.{key}": value for key, value in entries.items()}, "llama.")
    return rope_of(Bare("gguf", **factors), fields, Family((), partial=partial), 16, 256, served)  # type: ignore[arg-type]


def check(rope: Rope, frequencies: list[float], scale: float, context: int) -> None:
    assert rope.inv_freq.dtype == np.float32
    np.testing.assert_allclose(rope.inv_freq, frequencies, rtol=3e-7)
    assert rope.scale == pytest.approx(scale, rel=1e-7)
    assert rope.context == context


CASES: dict[str, tuple[dict[str, Any], list[float], float, int]] = {
    "none": ({"rope_type": "default"}, PLAIN, 1.0, 256),
    "linear": ({"rope_type": "linear", "factor": 4.0}, [f / 4 for f in PLAIN], 1.0, 256),
    "dynamic": ({"rope_type": "dynamic", "factor": 2.0}, PLAIN, 1.0, 256),
    "llama3": (
        {"rope_type": "llama3", **LLAMA3},
        [1.0, 0.24438459, 0.013042256, 0.0039528473, 0.00125, 0.00039528473, 0.000125, 3.9528473e-05],
        1.0,
        256,
    ),
    "yarn": (YARN, YARN_FREQUENCIES, 1.13862944, 256),
    "yarn with its own ramp": (
        {
            "rope_type": "yarn",
            "factor": 8.0,
            "original_max_position_embeddings": 128,
            "beta_fast": 16.0,
            "beta_slow": 2.0,
            "truncate": False,
        },
        [1.0, 0.1951755, 0.01327513, 0.0039528473, 0.00125, 0.00039528473, 0.000125, 3.9528473e-05],
        1.20794415,
        1024,
    ),
    "yarn with mscale": (
        {**YARN, "factor": 40.0, "mscale": 0.707, "mscale_all_dim": 1.0},
        [1.0, 0.21345372, 0.035, 0.00079056947, 0.00025, 7.9056947e-05, 2.5e-05, 7.9056945e-06],
        0.921042355,
        2560,
    ),
    "yarn with attention_factor": ({**YARN, "attention_factor": 1.25}, YARN_FREQUENCIES, 1.25, 256),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("newer", [False, True])
def test_scalings_of_config(case: str, newer: bool) -> None:
    rope, frequencies, scale, context = CASES[case]
    config: dict[str, Any]
    if newer:
        config = {"rope_parameters": {**rope, "rope_theta": 10000.0}}
    else:
        config = {"rope_theta": 10000.0, "rope_scaling": rope}
    check(of_config(config), frequencies, scale, context)


def test_rope_theta_inside_wins_and_type_is_the_old_name() -> None:
    rope = of_config({"rope_theta": 5.0, "rope_scaling": {"type": "linear", "factor": 4.0, "rope_theta": 10000.0}})
    check(rope, [f / 4 for f in PLAIN], 1.0, 256)


def test_nothing_stated_is_unscaled() -> None:
    check(of_config({"rope_scaling": None}), PLAIN, 1.0, 256)
    check(of_gguf({}), PLAIN, 1.0, 256)


def test_scalings_of_gguf() -> None:
    linear = [f / 4 for f in PLAIN]
    check(of_gguf({"scaling.type": "linear", "scaling.factor": 4.0}), linear, 1.0, 256)
    check(of_gguf({"scaling.factor": 4.0}), linear, 1.0, 256)
    check(of_gguf({"scale_linear": 4.0}), linear, 1.0, 256)
    check(of_gguf({"scaling.type": "none", "scaling.factor": 4.0}), PLAIN, 1.0, 256)
    yarn = {"scaling.type": "yarn", "scaling.factor": 4.0, "scaling.original_context_length": 64}
    check(of_gguf(yarn), YARN_FREQUENCIES, 1.13862944, 256)
    check(of_gguf({**yarn, "scaling.yarn_attn_factor": 1.25}), YARN_FREQUENCIES, 1.25, 256)
    check(of_gguf({**yarn, "scaling.attn_factor": 2.0}), YARN_FREQUENCIES, 2 * 1.13862944, 256)
    check(of_gguf({**yarn, "scaling.yarn_log_multiplier": 1.0}), YARN_FREQUENCIES, 1.0, 256)


def test_llama3_in_gguf_is_a_tensor_of_divisors() -> None:
    _, expected, _, _ = CASES["llama3"]
    check(of_gguf({}, rope_freqs=[p / e for p, e in zip(PLAIN, expected, strict=True)]), expected, 1.0, 256)
    with pytest.raises(ModelError, match=r"rope_freqs\.weight is F32 \(1, 3\)"):
        of_gguf({}, rope_freqs=[1.0, 1.0, 1.0])


SHORT, LONG = [1.0, 1.5, 2.0, 2.5], [4.0, 5.0, 6.0, 7.0]
HALF = [1.0, 0.1, 0.01, 0.001]  # of the first 8 of 16 dimensions


@pytest.mark.parametrize(("served", "divisors"), [(256, LONG), (65, LONG), (64, SHORT), (10, SHORT)])
def test_longrope_follows_the_longest_sequence_that_is_served(served: int, divisors: list[float]) -> None:
    expected, scale = [f / d for f, d in zip(HALF, divisors, strict=True)], 1.15470054  # sqrt(1 + ln 4 / ln 64)
    rope = {"rope_type": "longrope", "short_factor": SHORT, "long_factor": LONG, "partial_rotary_factor": 0.5}
    config = {"original_max_position_embeddings": 64, "rope_parameters": rope}
    check(of_config(config, served, partial=True), expected, scale, 256)
    old = {"original_max_position_embeddings": 64, "partial_rotary_factor": 0.5, "rope_scaling": {**rope, "type": "su"}}
    del old["rope_scaling"]["rope_type"], old["rope_scaling"]["partial_rotary_factor"]  # type: ignore[attr-defined]
    check(of_config(old, served, partial=True), expected, scale, 256)
    entries = {"dimension_count": 8, "scaling.original_context_length": 64, "scaling.attn_factor": 1.15470054}
    written = of_gguf(entries, served, partial=True, rope_factors_short=SHORT, rope_factors_long=LONG)
    check(written, expected, scale, 256)


@pytest.mark.parametrize(
    ("rope", "message"),
    [
        ({"rope_type": "proportional"}, "rope scaling proportional is not supported"),
        ({"rope_type": "longrope"}, "short_factor is missing"),
        ({"type": "su", "long_factor": LONG, "short_factor": LONG}, "_factor must be 8 numbers > 0"),
        ({"rope_type": "linear"}, "factor is missing"),
        ({"rope_type": "linear", "factor": 0.5}, "factor must be at least 1"),
        ({"rope_type": "linear", "factor": float("nan")}, "factor must be a number"),
        ({"rope_type": "llama3", **LLAMA3, "high_freq_factor": 1.0}, "must exceed low_freq_factor"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
        ({"full_attention": {}}, "differ by layer type"),
    ],
)
def test_what_is_not_computed_is_refused(rope: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        of_config({"rope_parameters": rope})


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"scaling.type": "longrope"}, "longrope is not supported"),
        ({"dimension_count": 8}, "rotating a part is not supported"),
        ({"scaling.type": "yarn", "scaling.yarn_ext_factor": 0.5}, "yarn_ext_factor other than 1"),
    ],
)
def test_what_is_not_computed_is_refused_in_gguf(entries: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        of_gguf(entries)
