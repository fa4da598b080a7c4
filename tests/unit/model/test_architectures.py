"""Specs and weights of each family: equal from both kinds of file, and strict about what is there."""

import json
from collections.abc import Callable, Mapping
from dataclasses import astuple, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from tiny_gguf import FFN, HEAD_DIM, HEADS, HIDDEN, KV_HEADS, VOCAB, llama_tensors

from headway.core.errors import ModelError
from headway.model.architectures.registry import architecture_of
from headway.model.checkpoint import open_checkpoint
from headway.model.spec import ModelSpec, RawTensor, floats

ModelWriter = Callable[..., Path]
Weights = dict[tuple[str, int], RawTensor]


def read(path: Path) -> tuple[ModelSpec, Weights]:
    checkpoint = open_checkpoint(path)
    family = architecture_of(checkpoint)
    spec = family.spec(checkpoint)
    return spec, {(weight.role, weight.layer): weight.tensor for weight in family.weights(checkpoint, spec)}


def test_spec_of_a_gguf_file(make_gguf: ModelWriter) -> None:
    spec, weights = read(make_gguf())
    assert (spec.layers, spec.hidden, spec.heads, spec.kv_heads, spec.head_dim) == (
        1,
        HIDDEN,
        HEADS,
        KV_HEADS,
        HEAD_DIM,
    )
    assert (spec.ffn, spec.vocab, spec.context, spec.windows, spec.tied) == (FFN, VOCAB, 128, (0,), True)
    roles = ["attn_norm", "q", "k", "v", "o", "ffn_norm", "gate", "up", "down"]
    assert list(weights) == [("embed", -1), *((role, 0) for role in roles), ("final_norm", -1)]


def test_q_and_k_rows_come_in_half_order(make_gguf: ModelWriter) -> None:
    bias = np.arange(KV_HEADS * HEAD_DIM, dtype=np.float32)
    _, weights = read(make_gguf(tensors={"blk.0.attn_k.bias": bias}))
    half = HEAD_DIM // 2
    for role, name in (("q", "blk.0.attn_q.weight"), ("k", "blk.0.attn_k.weight")):
        ours, written = weights[role, 0].data.view(np.float32), llama_tensors()[name]
        for row in range(len(written)):
            head, inside = divmod(row, HEAD_DIM)
            assert np.array_equal(ours[row], written[head * HEAD_DIM + inside % half * 2 + inside // half])
    assert weights["k_bias", 0].data[0].view(np.float32)[:HEAD_DIM].tolist() == [0, 2, 4, 6, 1, 3, 5, 7]


CONVERTED = sorted(p.stem for p in (Path(__file__).parents[2] / "parity" / "fixtures" / "converted").iterdir())


@pytest.mark.parametrize("name", ["llama_llama3", "llama_linear", "qwen2", "qwen2_yarn", "qwen3_tied", *CONVERTED])
def test_both_kinds_of_file_say_the_same(name: str, parity_fixtures: Path) -> None:
    """The GGUF files were converted from these folders by llama.cpp's own code."""
    spec, weights = read(parity_fixtures / "hf" / name)
    files = [*(parity_fixtures / "gguf").glob(f"{name}-*.gguf"), *(parity_fixtures / "converted").glob(f"{name}.gguf")]
    assert files
    for path in files:
        other, converted = read(path)
        assert list(converted) == list(weights)
        assert np.allclose(other.inv_freq, spec.inv_freq, rtol=1e-6, atol=0)
        assert other.rope_scale == pytest.approx(spec.rope_scale)
        assert astuple(other.scales) == pytest.approx(astuple(spec.scales))
        apart = {"architecture", "inv_freq", "rope_scale", "norm_eps", "scales"}
        same = [field.name for field in fields(spec) if field.name not in apart]
        assert [getattr(other, field) for field in same] == [getattr(spec, field) for field in same]
        for place, tensor in converted.items():
            assert tensor.shape == weights[place].shape
            if tensor.type in ("F32", "F16", "BF16"):
                np.testing.assert_allclose(floats(tensor), floats(weights[place]), rtol=1e-2, atol=1e-6)
            elif tensor.type == weights[place].type:
                assert np.array_equal(tensor.data, weights[place].data)


def test_of_experts_the_active_ones_are_counted(parity_fixtures: Path) -> None:
    spec, weights = read(parity_fixtures / "hf" / "qwen2_moe")
    assert spec.experts is not None and (spec.experts.count, spec.experts.active) == (6, 3)
    used = [
        tensor.shape[0] * tensor.shape[1] // (2 if "." in role else 1)  # half of the experts
        for (role, layer), tensor in weights.items()
        if layer >= 0 and "norm" not in role and "bias" not in role
    ]
    assert spec.layer_macs == sum(used)


def test_biases_and_head_norms_are_there_where_they_should_be(parity_fixtures: Path) -> None:
    _, qwen2 = read(parity_fixtures / "hf" / "qwen2")
    _, qwen3 = read(parity_fixtures / "hf" / "qwen3")
    assert {role for role, _ in qwen2 if role.endswith("_bias")} == {"q_bias", "k_bias", "v_bias"}
    assert {role for role, _ in qwen3} >= {"q_norm", "k_norm"}
    assert not any(role.endswith("_bias") for role, _ in qwen3)


@pytest.mark.parametrize(
    ("name", "config", "windows"),
    [
        ("mistral_window", {}, (24, 24)),
        ("mistral_window", {"sliding_window": 7}, (7, 7)),
        ("mistral_window", {"sliding_window": None}, (4096, 4096)),  # absent: Mistral's default
        ("mistral_full", {}, (0, 0)),  # null
        ("llama_linear", {"sliding_window": 7}, (0, 0)),
        ("qwen2", {"sliding_window": 7, "layer_types": None}, (0, 0)),
        (
            "qwen2",
            {"sliding_window": 7, "layer_types": None, "use_sliding_window": True, "max_window_layers": 1},
            (0, 7),
        ),
        (
            "qwen2",
            {"sliding_window": 7, "layer_types": ["sliding_attention", "full_attention"], "use_sliding_window": True},
            (7, 0),
        ),
        ("phi3_window", {}, (24, 24)),
        ("phi3_window", {"sliding_window": None}, (0, 0)),
        ("gemma2", {"layer_types": None}, (24, 0, 24)),
        ("gemma2", {"layer_types": None, "sliding_window": None}, (4096, 0, 4096)),
        ("gemma3", {"layer_types": None, "sliding_window_pattern": 2}, (24, 0, 24, 0, 24, 0)),
        ("mixtral", {"sliding_window": 7}, (7, 7)),
        ("qwen3_moe", {"sliding_window": 7}, (0, 0)),
        ("qwen3_moe", {"sliding_window": 7, "use_sliding_window": True}, (7, 7)),
        ("smollm3", {"sliding_window": 7, "layer_types": None}, (0, 0, 0, 0)),
        ("smollm3", {"sliding_window": 7, "layer_types": None, "use_sliding_window": True}, (0, 0, 0, 7)),
    ],
)
def test_windows(copy_model: ModelWriter, name: str, config: Mapping[str, Any], windows: tuple[int, ...]) -> None:
    assert read(copy_model(name, config=config))[0].windows == windows


@pytest.mark.parametrize(
    ("config", "ropes"),
    [
        ({}, (0, 0, 0, -1)),
        ({"no_rope_layers": [0, 1, 1, 0]}, (-1, 0, 0, -1)),
        ({"no_rope_layers": None, "no_rope_layer_interval": 2}, (0, -1, 0, -1)),
    ],
)
def test_layers_that_do_not_rotate(copy_model: ModelWriter, config: Mapping[str, Any], ropes: tuple[int, ...]) -> None:
    assert read(copy_model("smollm3", config=config))[0].ropes == ropes


NO_LOCAL_YARN = {"full_attention": {}, "sliding_attention": {"rope_type": "yarn"}}
OLD = {"rope_theta": 100000.0, "rope_scaling": {"rope_type": "linear", "factor": 8.0}, "rope_local_base_freq": 1000.0}


@pytest.mark.parametrize("config", [{}, {"rope_parameters": None, **OLD}])
def test_windowed_layers_of_gemma3_rotate_by_their_own_base(copy_model: ModelWriter, config: Mapping[str, Any]) -> None:
    spec, _ = read(copy_model("gemma3", config=config))
    assert spec.ropes == (1, 1, 1, 1, 1, 0)
    exponents = np.arange(0, -16, -2) / 16
    np.testing.assert_allclose(spec.inv_freq, [100000.0**exponents / 8, 1000.0**exponents], rtol=1e-6)


@pytest.mark.parametrize(("text", "images"), [("language_model.model.", ""), ("model.language_model.", "model.")])
def test_the_text_part_of_a_model_with_images(copy_model: ModelWriter, text: str, images: str) -> None:
    path = copy_model("gemma3")
    spec, weights = read(path)
    config, tensors = json.loads((path / "config.json").read_text()), load_file(path / "model.safetensors")
    nested = {"model_type": "gemma3", "text_config": config, "vision_config": {}}
    (path / "config.json").write_text(json.dumps(nested))
    renamed = {text + name.removeprefix("model."): tensor for name, tensor in tensors.items()}
    eyes = {f"{images}{name}": np.ones(3, np.float32) for name in ("vision_tower.a.weight", "multi_modal_projector.b")}
    save_file(renamed | eyes, path / "model.safetensors")
    same, again = read(path)
    assert {place: tensor.data.tobytes() for place, tensor in again.items()} == {
        place: tensor.data.tobytes() for place, tensor in weights.items()
    }
    assert np.array_equal(same.inv_freq, spec.inv_freq)
    assert replace(same, inv_freq=spec.inv_freq) == spec
    save_file(renamed | eyes | {"audio_tower.c": np.ones(3, np.float32)}, path / "model.safetensors")
    with pytest.raises(ModelError, match=r"unknown tensor audio_tower\.c"):
        read(path)


def test_what_gemma3_leaves_unsaid_of_its_text_part(copy_model: ModelWriter) -> None:
    said = {"hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34, "sliding_window": 1024}
    path = copy_model("gemma3", config={"model_type": "gemma3", "text_config": said})
    checkpoint = open_checkpoint(path)
    spec = architecture_of(checkpoint).spec(checkpoint)  # Gemma 3 4B
    assert (spec.heads, spec.kv_heads, spec.head_dim, spec.vocab, spec.context) == (8, 4, 256, 262208, 131072)
    assert (spec.windows[:6], spec.scales.attention, spec.tied) == ((1024,) * 5 + (0,), 1 / 16, True)
    np.testing.assert_allclose(spec.inv_freq[:, 1], [1e6 ** (-2 / 256), 1e4 ** (-2 / 256)], rtol=1e-6)


@pytest.mark.parametrize("name", ["gemma2", "gemma3"])
def test_scores_of_gemma_have_their_own_scale(copy_model: ModelWriter, name: str) -> None:
    assert read(copy_model(name, config={"query_pre_attn_scalar": 144}))[0].scales.attention == pytest.approx(1 / 12)


@pytest.mark.parametrize(
    ("name", "silent", "off"),
    [("attn_logit_softcapping", (50.0, 5.0), (0, 5.0)), ("final_logit_softcapping", (4.0, 30.0), (4.0, 0))],
)
def test_soft_caps_of_gemma2_have_defaults_and_can_be_off(
    copy_model: ModelWriter, name: str, silent: tuple[float, float], off: tuple[float, float]
) -> None:
    path = copy_model("gemma2", config={name: None})  # takes the entry out
    scales = read(path)[0].scales
    assert (scales.attention_cap, scales.logit_cap) == silent
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(config | {name: None}))
    scales = read(path)[0].scales
    assert (scales.attention_cap, scales.logit_cap) == off


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"llama.block_count": None}, r"llama\.block_count is missing"),
        ({"llama.block_count": "two"}, r"llama\.block_count must be a whole number"),
        ({"llama.embedding_length": 0}, r"llama\.embedding_length must not be 0"),
        ({"llama.attention.head_count_kv": 3}, "4 heads cannot share 3"),
        ({"llama.attention.key_length": 7}, "head size of 7"),
        ({"llama.attention.value_length": 16}, "value_length must equal"),
        ({"llama.expert_count": 8}, r"llama\.expert_used_count is missing"),
        ({"llama.expert_count": 2, "llama.expert_used_count": 3}, "3 of 2 experts of width 64 are impossible"),
        ({"llama.expert_count": 2, "llama.expert_used_count": 1, "llama.expert_gating_func": 2}, "only softmax"),
        ({"llama.expert_count": 2, "llama.expert_used_count": 1, "llama.expert_weights_scale": 2.5}, "weights_scale"),
        ({"llama.expert_count": 2, "llama.expert_used_count": 1}, r"unknown tensor blk\.0\.ffn_gate\.weight"),
        ({"llama.feed_forward_length": 32}, r"ffn_gate\.weight has the shape \(64, 32\), not \(32, 32\)"),
        ({"llama.block_count": 2}, r"tensor blk\.1\.attn_norm\.weight is missing"),
    ],
)
def test_metadata_that_does_not_fit_is_refused(
    make_gguf: ModelWriter, metadata: Mapping[str, Any], message: str
) -> None:
    with pytest.raises(ModelError, match=message):
        read(make_gguf(metadata))


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({"blk.0.attn_q.weight": None}, r"blk\.0\.attn_q\.weight is missing"),
        ({"blk.0.attn_q_norm.weight": np.ones(HEAD_DIM, np.float32)}, r"unknown tensor blk\.0\.attn_q_norm\.weight"),
        ({"blk.1.attn_q.weight": np.ones((4, 4), np.float32)}, r"unknown tensor blk\.1\.attn_q\.weight"),
        ({"output_norm.weight": np.ones(HIDDEN + 1, np.float32)}, r"output_norm\.weight has the shape \(1, 33\)"),
    ],
)
def test_tensors_that_do_not_fit_are_refused(make_gguf: ModelWriter, tensors: Mapping[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        read(make_gguf(tensors=tensors))


def test_stored_frequencies_are_no_surprise(make_gguf: ModelWriter) -> None:
    read(make_gguf(tensors={"blk.0.attn_rot_embd.weight": np.ones(HEAD_DIM // 2, np.float32)}))


def test_a_head_beside_a_tied_embedding_must_equal_it(copy_model: ModelWriter) -> None:
    path = copy_model("llama_llama3") / "model.safetensors"
    tensors = load_file(path)
    save_file(tensors | {"lm_head.weight": tensors["model.embed_tokens.weight"].copy()}, path)
    assert read(path.parent)[0].tied
    save_file(tensors | {"lm_head.weight": tensors["model.embed_tokens.weight"] + 1}, path)
    with pytest.raises(ModelError, match=r"unknown tensor lm_head\.weight"):
        read(path.parent)


@pytest.mark.parametrize(
    ("name", "config", "message"),
    [
        ("granite", {"logits_scaling": 0}, "logits_scaling must not be 0"),
        ("smollm3", {"no_rope_layers": [1, 1]}, "no_rope_layers must be 0 or 1 for each of 4"),
        ("smollm3", {"use_sliding_window": True, "layer_types": ["chunked_attention"] * 4}, "layer_types must name"),
        ("phi3_long", {"hidden_act": "gelu"}, "hidden_act gelu is not supported"),
        ("gemma2", {"hidden_activation": "gelu"}, "hidden_activation gelu is not supported"),
        ("gemma3", {"use_bidirectional_attention": True}, "use_bidirectional_attention is not supported"),
        ("gemma3", {"text_config": 3}, "text_config must be an object"),
        ("gemma2", {"text_config": {}}, "models of images and text are not supported"),
        ("gemma3", {"rope_parameters": NO_LOCAL_YARN}, "scaling of sliding_attention"),
        ("mixtral", {"num_experts_per_tok": 6}, "6 of 5 experts of width 40 are impossible"),
        ("qwen2_moe", {"mlp_only_layers": [1]}, "layers without experts are not supported"),
        ("qwen3_moe", {"decoder_sparse_step": 2}, "layers without experts are not supported"),
        ("qwen2_moe", {"use_sliding_window": True, "layer_types": None}, "without layer_types is not supported"),
        ("qwen2_moe", {"shared_expert_intermediate_size": 32}, r"shared_expert\.gate_proj\.weight has the shape"),
        ("olmo2", {"attention_bias": True}, r"q_proj\.bias is missing"),
    ],
)
def test_what_a_family_does_not_compute_is_refused(
    copy_model: ModelWriter, name: str, config: Mapping[str, Any], message: str
) -> None:
    with pytest.raises(ModelError, match=message):
        read(copy_model(name, config=config))


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"hidden_act": "gelu"}, "hidden_act gelu is not supported"),
        ({"quantization_config": {"quant_method": "awq"}}, "quantised by awq"),
        ({"attention_bias": True}, r"q_proj\.bias is missing"),
        ({"model_type": "mamba"}, r"mamba is not supported \(.*llama, mistral, .*qwen3.* are\)"),
    ],
)
def test_configs_that_are_not_computed_are_refused(
    copy_model: ModelWriter, config: Mapping[str, Any], message: str
) -> None:
    with pytest.raises(ModelError, match=message):
        read(copy_model("llama_llama3", config=config))


def test_the_default_model(default_model: Path) -> None:
    spec, weights = read(default_model)
    assert (spec.layers, spec.vocab, spec.context, spec.tied, len(weights)) == (30, 49152, 8192, True, 272)
