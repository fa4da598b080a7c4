"""gpt-oss: its folders' experts one by one, in floats and in 4-bit floats."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import headway._native as _native
from headway.core.config import EngineSettings
from headway.core.errors import ModelError
from headway.model.architectures.gpt_oss_folder import mxfp4
from headway.model.architectures.registry import architecture_of
from headway.model.checkpoint import open_checkpoint
from headway.model.inspection import TypeUse, inspect_model
from headway.model.load import load_runner
from headway.model.spec import ModelSpec, RawTensor, floats

ModelWriter = Callable[..., Path]
MXFP4 = gguf.GGMLQuantizationType.MXFP4
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)


def read(path: Path) -> tuple[ModelSpec, dict[tuple[str, int], RawTensor]]:
    checkpoint = open_checkpoint(path)
    family = architecture_of(checkpoint)
    spec = family.spec(checkpoint)
    return spec, {(weight.role, weight.layer): weight.tensor for weight in family.weights(checkpoint, spec)}


def test_each_expert_has_its_gate_up_and_down(copy_model: ModelWriter) -> None:
    path = copy_model("gpt_oss")
    spec, weights = read(path)
    tensors = load_file(path / "model.safetensors")
    assert (spec.activation, spec.windows, spec.ffn) == ("clamped_silu", (24, 0, 24), 0)
    for layer in range(spec.layers):
        at = f"model.layers.{layer}.mlp.experts."
        for expert in range(5):
            for step, part in enumerate(("gate", "up")):
                matrix, bias = tensors[f"{at}gate_up_proj"][expert], tensors[f"{at}gate_up_proj_bias"][expert]
                assert np.array_equal(floats(weights[f"{part}.{expert}", layer]), matrix[:, step::2].T)
                assert np.array_equal(floats(weights[f"{part}.{expert}_bias", layer])[0], bias[step::2])
            assert np.array_equal(floats(weights[f"down.{expert}", layer]), tensors[f"{at}down_proj"][expert].T)
            assert np.array_equal(
                floats(weights[f"down.{expert}_bias", layer])[0], tensors[f"{at}down_proj_bias"][expert]
            )
        assert np.array_equal(floats(weights["sinks", layer])[0], tensors[f"model.layers.{layer}.self_attn.sinks"])
        assert ("router_bias", layer) in weights and ("o_bias", layer) in weights


def test_blocks_become_those_of_gguf() -> None:
    rng = np.random.default_rng(1)
    blocks = rng.integers(0, 256, (7, 3, 16), np.uint8)
    scales = rng.integers(100, 140, (7, 3), np.uint8)
    codes = np.stack((blocks & 15, blocks >> 4), -1).reshape(7, 3, 32)
    expected = (E2M1[codes] * np.exp2(scales.astype(np.float32) - 127)[..., None]).reshape(7, 96)
    assert np.array_equal(gguf.quants.dequantize(mxfp4(blocks, scales), MXFP4), expected)


def test_four_bit_floats_are_read_as_gguf_reads_them() -> None:
    """Every code under every scale that overflows none."""
    blocks = np.random.default_rng(2).integers(0, 256, (256 * 4, 17), np.uint8)
    blocks[:, 0] = np.arange(256 * 4) % 252
    rows = blocks.reshape(256, 4 * 17)
    ours = _native.dequantise("MXFP4", 256, 128, rows)
    assert np.array_equal(ours.reshape(256, 128), gguf.quants.dequantize(rows, MXFP4))


@pytest.mark.parametrize("kind", ["hf", "converted"])
def test_inspection(parity_fixtures: Path, kind: str) -> None:
    path = parity_fixtures / kind / ("gpt_oss_mxfp4" + (".gguf" if kind == "converted" else ""))
    found = inspect_model(path, EngineSettings())
    assert found.stored["MXFP4"] == found.computed["MXFP4"] == TypeUse(3 * 5 * 3, 3 * 5 * 3 * 64 * 32)
    assert (found.layers, found.heads, found.vocab, found.windows) == (3, 4, 160, (24,))


@pytest.mark.parametrize(("mode", "type_"), [("int8", "Q8_0"), ("int4", "Q4_1")])
def test_of_experts_the_matrices_alone_are_quantised(parity_fixtures: Path, mode: Any, type_: str) -> None:
    path = parity_fixtures / "hf" / "gpt_oss"
    found = inspect_model(path, EngineSettings(quantize=mode))
    vectors = [tensor for tensor in read(path)[1].values() if tensor.shape[0] == 1]
    assert found.computed["F16"].tensors == len(vectors) + 3  # and routers
    assert found.computed[type_].tensors >= 3 * (4 + 3 * 5)
    load_runner(path, EngineSettings(quantize=mode, threads=1, kv_memory_mb=16, max_sequences=1)).close()


def test_a_scale_that_cannot_be_kept_is_refused(copy_model: ModelWriter) -> None:
    path = copy_model("gpt_oss_mxfp4")
    tensors = load_file(path / "model.safetensors")
    tensors["model.layers.1.mlp.experts.down_proj_scales"][2, 5, 0] = 200
    save_file(tensors, path / "model.safetensors")
    settings = EngineSettings(threads=1, kv_memory_mb=16, max_sequences=1, max_step_tokens=32)
    with pytest.raises(ModelError, match=r"gpt_oss_mxfp4: an MXFP4 block has the scale 2\^73"):
        load_runner(path, settings)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("down_proj_scales", r"tensor model\.layers\.0\.mlp\.experts\.down_proj_scales is missing"),
        ("gate_up_proj_blocks", r"tensor model\.layers\.0\.mlp\.experts\.gate_up_proj_blocks is missing"),
        ("gate_up_proj_bias", r"tensor model\.layers\.0\.mlp\.experts\.0\.gate_proj\.bias is missing"),
    ],
)
def test_what_is_missing_is_named(copy_model: ModelWriter, name: str, message: str) -> None:
    path = copy_model("gpt_oss_mxfp4")
    tensors = load_file(path / "model.safetensors")
    del tensors[f"model.layers.0.mlp.experts.{name}"]
    save_file(tensors, path / "model.safetensors")
    with pytest.raises(ModelError, match=message):
        read(path)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"swiglu_limit": 5.0}, r"swiglu_limit 5\.0 is not supported"),
        ({"swiglu_alpha": 1.0}, r"swiglu_alpha 1\.0 is not supported"),
        ({"quantization_config": {"quant_method": "awq"}}, "quantised by awq"),
        ({"num_local_experts": 3}, r"router\.weight has the shape \(5, 64\)"),
        ({"num_local_experts": "many"}, "num_local_experts must be a whole number"),
        ({"intermediate_size": 64}, r"gate_proj\.weight has the shape \(32, 64\), not \(64, 64\)"),
    ],
)
def test_what_is_not_computed_is_refused(copy_model: ModelWriter, config: Mapping[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        read(copy_model("gpt_oss", config=config))


def test_blocks_and_scales_must_fit(copy_model: ModelWriter) -> None:
    path = copy_model("gpt_oss_mxfp4")
    tensors = load_file(path / "model.safetensors")
    name = "model.layers.0.mlp.experts.gate_up_proj_scales"
    tensors[name] = np.ascontiguousarray(tensors[name][:, ::2])
    save_file(tensors, path / "model.safetensors")
    with pytest.raises(ModelError, match="do not belong together"):
        read(path)


def test_experts_that_are_there_twice_are_refused(copy_model: ModelWriter) -> None:
    path = copy_model("gpt_oss_mxfp4")
    tensors = load_file(path / "model.safetensors")
    tensors["model.layers.0.mlp.experts.down_proj"] = np.ones((5, 32, 64), np.float16)
    save_file(tensors, path / "model.safetensors")
    with pytest.raises(ModelError, match=r"unknown tensor model\.layers\.0\.mlp\.experts\.down_proj_(blocks|scales)"):
        read(path)


def test_bytes_are_no_weights(copy_model: ModelWriter) -> None:
    path = copy_model("gpt_oss")
    tensors = load_file(path / "model.safetensors")
    tensors["model.layers.0.self_attn.q_proj.weight"] = np.ones((64, 64), np.uint8)
    save_file(tensors, path / "model.safetensors")
    with pytest.raises(ModelError, match=r"q_proj\.weight is U8; supported are F32"):
        read(path)


def test_windows_and_rotation_that_are_not_stated(copy_model: ModelWriter) -> None:
    unsaid = {"layer_types": None, "sliding_window": None, "rope_parameters": None}
    spec, _ = read(copy_model("gpt_oss", config=unsaid))
    assert (spec.windows, spec.context) == ((128, 0, 128), 131072)
    assert spec.rope_scale == pytest.approx(0.1 * np.log(32) + 1)
    assert spec.inv_freq[0, -1] == pytest.approx(150000 ** (-14 / 16) / 32)
