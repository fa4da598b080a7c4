"""Weights quantised at load are what llama.cpp's quantiser makes, by the `gguf` package's account of it."""

from pathlib import Path

import gguf
import numpy as np
import pytest
from gguf.quants import dequantize, quantize
from numpy.typing import NDArray
from runner_logits import SETTINGS, logits_of
from tiny_gguf import llama_metadata, llama_tensors, write_gguf

import headway._native as _native
from headway.core.config import EngineSettings
from headway.core.errors import ModelError
from headway.model.load import load_runner

Types = gguf.GGMLQuantizationType


def with_mode(mode: str) -> EngineSettings:
    return SETTINGS.model_copy(update={"quantize": mode})


def stored(values: NDArray[np.float32], type_: str) -> NDArray[np.uint8]:
    return quantize(values, Types[type_]).view(np.uint8)  # type: ignore[no-any-return]


@pytest.mark.parametrize("to", ["Q8_0", "Q4_1"])
@pytest.mark.parametrize("type_", ["F32", "F16", "BF16"])
def test_bytes_equal_those_of_the_reference(type_: str, to: str) -> None:
    values = np.random.default_rng(5).standard_normal((40, 96), np.float32)
    values[0] = 0
    values[1] = 0.25
    values[2] *= 1e-7  # below the smallest scale
    values[3] *= 1e4
    data = stored(values, type_)
    expected = quantize(dequantize(data, Types[type_]), Types[to])
    np.testing.assert_array_equal(_native.quantise(type_, 40, 96, data, to).reshape(40, -1), expected)


def test_floats_again() -> None:
    values = np.random.default_rng(5).standard_normal((3, 256), np.float32)
    for type_ in ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"):
        data = stored(values, type_)
        given = _native.dequantise(type_, 3, 256, data).reshape(3, 256)
        np.testing.assert_array_equal(given, dequantize(data, Types[type_]))


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("mode", ["int8", "int4"])
def test_a_model_quantised_at_load_is_the_model_quantised_before(mode: str, tied: bool, tmp_path: Path) -> None:
    tensors = llama_tensors()
    if not tied:
        tensors["output.weight"] = tensors["token_embd.weight"][::-1].copy()
    types = {
        name: Types.Q8_0 if mode == "int8" or name in ("token_embd.weight", "output.weight") else Types.Q4_1
        for name, tensor in tensors.items()
        if tensor.ndim == 2
    }
    small = {name: quantize(tensor, types[name]) if name in types else tensor for name, tensor in tensors.items()}
    plain = write_gguf(tmp_path / "plain.gguf", llama_metadata(), tensors)
    before = write_gguf(tmp_path / "before.gguf", llama_metadata(), small, types=types)
    np.testing.assert_array_equal(logits_of(plain, with_mode(mode)), logits_of(before))
    assert (logits_of(plain) != logits_of(before)).any()


def test_the_fingerprint_says_how(parity_fixtures: Path) -> None:
    names = set()
    for mode in ("none", "int8", "int4"):
        runner = load_runner(parity_fixtures / "hf" / "llama_llama3", with_mode(mode))
        names.add(runner.info.fingerprint)
        runner.close()
    assert len(names) == 3


def test_what_is_quantised_already_is_refused(parity_fixtures: Path) -> None:
    with pytest.raises(ModelError, match=r"engine\.quantize = int8: no weights of .* are F32, F16 or BF16"):
        load_runner(parity_fixtures / "gguf" / "llama_llama3-q4_1.gguf", with_mode("int8"))


def test_only_floats_are_quantised() -> None:
    with pytest.raises(ValueError, match="only F32, F16 and BF16"):
        _native.quantise("Q8_0", 1, 32, np.zeros(34, np.uint8), "Q4_1")
    with pytest.raises(ValueError, match="to Q8_0 or Q4_1"):
        _native.quantise("F32", 1, 32, np.zeros(128, np.uint8), "Q5_0")
    with pytest.raises(ValueError, match="whole number of blocks"):
        _native.quantise("F32", 1, 30, np.zeros(120, np.uint8), "Q8_0")
