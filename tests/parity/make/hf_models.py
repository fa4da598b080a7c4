"""Make tiny random Hugging Face models and what transformers answers on them, in float32.

One folder per model under OUT: config.json, generation_config.json, model.safetensors, for some a
tokenizer, and expected.npz with

    prompts        int32   [3, 70]          token ids, padded with -1
    lengths        int32   [3]              5, 23, 70
    logits         float32 [3, 70, vocab]   eager forward at every position, zero where padded
    greedy         int32   [3, 12]          greedy continuation, the whole sequence recomputed each step
    greedy_margin  float32 [3, 12]          best logit minus second best at each of those steps

Every weight is random, norms (around 1) and biases included, so that a forgotten one shows. Weights are
stored as the model's `dtype` says and always computed in float32.

    python hf_models.py OUT [NAME ...]

Needs torch, transformers, tokenizers, sentencepiece. The weights are random numbers: no licence applies.
The tokenizers are trained on src/headway/bench/quality_text.txt (public domain).
"""

import argparse
import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import mxfp4
import numpy as np
import tiny_tokenizers
import torch
import transformers
from safetensors.torch import load_file

VOCAB = 320
LENGTHS = (5, 23, 70)
STEPS = 12


@dataclass(frozen=True)
class Tiny:
    """One model to make: its architecture, what differs from `SMALL`, and how it is stored."""

    architecture: str
    config: dict[str, Any]
    seed: int
    dtype: torch.dtype = torch.float32
    tokenizer: str = ""  # "", "qwen2", "llama-bpe" or "spm"
    scale: float = 0.2  # standard deviation of every matrix
    mxfp4: bool = False  # whether experts are 4-bit floats, in the layout of OpenAI's own files
    old_spelling: bool = False  # write config.json as transformers 4 did
    extra: dict[str, Any] = field(default_factory=dict)  # added to generation_config.json


SMALL: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}

# original_max_position_embeddings and theta are chosen so that the ramps of llama3 and yarn fall inside the head.
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
YARN = {"rope_type": "yarn", "rope_theta": 1000.0, "factor": 4.0, "original_max_position_embeddings": 1024}
LINEAR = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.5}


def plain(theta: float) -> dict[str, Any]:
    """Rotary parameters without scaling."""
    return {"rope_type": "default", "rope_theta": theta}


# Families that need no tokenizer here are stored in half precision, exact to compute with and half as large, and have
# fewer words.
NARROW: dict[str, Any] = {"vocab_size": 160, "tie_word_embeddings": False}


def half(architecture: str, seed: int, **config: Any) -> Tiny:
    """A model stored in half precision."""
    return Tiny(architecture, NARROW | config, seed, dtype=torch.float16)


MODELS: dict[str, Tiny] = {
    "llama_llama3": Tiny(
        "Llama",
        {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "tie_word_embeddings": True}
        | {"rope_parameters": LLAMA3},
        seed=201,
        tokenizer="llama-bpe",
        extra={"temperature": 0.6, "top_p": 0.9, "do_sample": True, "eos_token_id": [2, 0]},
    ),
    "llama_linear": Tiny(
        "Llama",
        {"num_attention_heads": 2, "num_key_value_heads": 2, "rope_parameters": LINEAR},
        seed=382,
        dtype=torch.bfloat16,
        old_spelling=True,
    ),
    "mistral_window": Tiny(
        "Mistral",
        {"sliding_window": 24, "num_key_value_heads": 1, "head_dim": 16, "rope_parameters": plain(10000.0)},
        seed=333,
        dtype=torch.bfloat16,
        tokenizer="spm",
        old_spelling=True,
    ),
    "mistral_full": Tiny(
        "Mistral",
        {"sliding_window": None, "head_dim": 32, "rope_parameters": plain(1000000.0)},
        seed=284,
        dtype=torch.float16,
    ),
    "qwen2": Tiny(
        "Qwen2",
        {"tie_word_embeddings": True, "rms_norm_eps": 1e-6, "rope_parameters": plain(1000000.0)},
        seed=295,
        dtype=torch.bfloat16,
        tokenizer="qwen2",
    ),
    "qwen2_yarn": Tiny(
        "Qwen2",
        {
            "num_attention_heads": 2,
            "num_key_value_heads": 1,
            "tie_word_embeddings": True,
            "max_position_embeddings": 4096,
            "rope_parameters": YARN,
        },
        seed=316,
        dtype=torch.bfloat16,
        old_spelling=True,
    ),
    "qwen3": Tiny(
        "Qwen3",
        {"head_dim": 32, "rms_norm_eps": 1e-6, "rope_parameters": plain(1000000.0)},
        seed=327,
        dtype=torch.bfloat16,
    ),
    "qwen3_tied": Tiny(
        "Qwen3",
        {"head_dim": 32, "num_key_value_heads": 1, "tie_word_embeddings": True, "rope_parameters": plain(10000.0)},
        seed=208,
        dtype=torch.bfloat16,
        old_spelling=True,
    ),
}

SHORT_FACTORS, LONG_FACTORS = [1.0, 1.1, 1.3, 1.6, 2.0, 2.5], [1.5, 3.0, 5.0, 8.0, 12.0, 20.0]


def longrope(original: int) -> dict[str, Any]:
    """LongRoPE on 12 of 16 dimensions, as Phi-4-mini rotates three quarters."""
    return {
        "rope_type": "longrope",
        "rope_theta": 10000.0,
        "partial_rotary_factor": 0.75,
        "short_factor": SHORT_FACTORS,
        "long_factor": LONG_FACTORS,
        "original_max_position_embeddings": original,
    }


GPT_OSS: dict[str, Any] = {
    "num_hidden_layers": 3,
    "head_dim": 16,
    "sliding_window": 24,
    "num_local_experts": 5,
    "num_experts_per_tok": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 4096,
    "rope_parameters": YARN | {"truncate": False},
}

MODELS |= {
    "phi3_window": half("Phi3", 1901, sliding_window=24, rope_parameters=plain(10000.0)),
    # Longer than the original context are all prompts, or none: the factors change with a sequence's length.
    "phi3_long": replace(
        half("Phi3", 2902, original_max_position_embeddings=4, rope_parameters=longrope(4)), scale=0.15
    ),  # its attention factor is 2
    "phi3_short": half("Phi3", 1603, original_max_position_embeddings=128, rope_parameters=longrope(128)),
    "granite": half(
        "Granite",
        2104,
        embedding_multiplier=3.0,
        attention_multiplier=0.4,
        residual_multiplier=0.6,
        logits_scaling=1.5,
        tie_word_embeddings=True,
        rope_parameters=plain(10000.0),
    ),
    "olmo2": half("Olmo2", 1105, rope_parameters=plain(500000.0)),
    # Weights this steep would saturate the caps; a mild one shows as well.
    "gemma2": half(
        "Gemma2",
        701,
        num_hidden_layers=3,
        head_dim=32,
        query_pre_attn_scalar=32,
        sliding_window=24,
        attn_logit_softcapping=4.0,
        final_logit_softcapping=5.0,
        tie_word_embeddings=True,
        rope_parameters=plain(10000.0),
    ),
    "gemma3": half(
        "Gemma3",
        602,
        num_hidden_layers=6,
        head_dim=16,
        query_pre_attn_scalar=16,
        sliding_window=24,
        tie_word_embeddings=True,
        rope_parameters={
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 100000.0},
            "sliding_attention": plain(1000.0),
        },
    ),
    "mixtral": replace(
        half("Mixtral", 1201, num_local_experts=5, intermediate_size=40, rope_parameters=plain(1000000.0)), scale=0.15
    ),
    "qwen2_moe": half(
        "Qwen2Moe",
        602,
        num_experts=6,
        num_experts_per_tok=3,
        moe_intermediate_size=32,
        shared_expert_intermediate_size=48,
        norm_topk_prob=False,
        rope_parameters=plain(1000000.0),
    ),
    "qwen3_moe": half(
        "Qwen3Moe",
        603,
        head_dim=32,
        num_experts=8,
        num_experts_per_tok=2,
        moe_intermediate_size=32,
        norm_topk_prob=True,
        tie_word_embeddings=True,
        rope_parameters=plain(1000000.0),
    ),
    # Its gates and ups are steep enough to be clamped.
    "gpt_oss": replace(half("GptOss", 1956, **GPT_OSS), scale=0.15),
    "gpt_oss_mxfp4": replace(half("GptOss", 1970, **GPT_OSS), scale=0.15, mxfp4=True),
    "smollm3": half("SmolLM3", 1706, num_hidden_layers=4, rope_parameters=plain(5000000.0), tie_word_embeddings=True),
}


def random_model(tiny: Tiny) -> transformers.PreTrainedModel:
    """The model with every parameter drawn anew, rounded to the stored type, held in float32."""
    model_class = getattr(transformers, f"{tiny.architecture}ForCausalLM")
    config = model_class.config_class(**(SMALL | tiny.config), attn_implementation="eager")
    model = model_class(config).float().eval()
    generator = torch.Generator().manual_seed(tiny.seed)
    middle = 0 if tiny.architecture.startswith("Gemma") else 1  # of a norm's weights; Gemma's models add 1
    with torch.no_grad():
        for name, weight in sorted(model.named_parameters()):
            noise = torch.randn(weight.shape, generator=generator)
            value = middle + 0.3 * noise if name.endswith("norm.weight") else tiny.scale * noise
            if name.endswith("bias"):
                value = 0.5 * noise
            if name.endswith("sinks"):
                value = 2 * noise
            if name.endswith("gate_up_proj"):
                value = 2 * value
            if tiny.mxfp4 and name.endswith(("gate_up_proj", "down_proj")):
                value = mxfp4.values(*mxfp4.blocks_and_scales(value.swapaxes(1, 2))).swapaxes(1, 2)
            weight.copy_(value.to(tiny.dtype))
    return model


def forward(model: transformers.PreTrainedModel, ids: list[int]) -> np.ndarray:
    """Logits [len(ids), vocab] in float32, without a cache."""
    with torch.no_grad():
        return model(torch.tensor([ids]), use_cache=False).logits[0].float().numpy()


def random_prompts(seed: int, vocab: int) -> list[list[int]]:
    """One prompt of each length, of ids that are not special."""
    rng = np.random.default_rng(seed)
    return [rng.integers(3, vocab, size=n).tolist() for n in LENGTHS]


def padded(prompts: list[list[int]]) -> dict[str, np.ndarray]:
    """The arrays `prompts` and `lengths`."""
    table = np.full((len(prompts), max(map(len, prompts))), -1, dtype=np.int32)
    for row, ids in zip(table, prompts, strict=True):
        row[: len(ids)] = ids
    return {"prompts": table, "lengths": np.array([len(ids) for ids in prompts], dtype=np.int32)}


def expected(model: transformers.PreTrainedModel, prompts: list[list[int]]) -> dict[str, np.ndarray]:
    """Logits at every position, and the greedy continuation of each prompt."""
    arrays = padded(prompts)
    logits = np.zeros((*arrays["prompts"].shape, model.config.vocab_size), dtype=np.float32)
    greedy, margins = [], []
    for row, prompt in enumerate(prompts):
        ids, margin = list(prompt), []
        logits[row, : len(ids)] = forward(model, ids)
        for _ in range(STEPS):
            last = forward(model, ids)[-1]
            second, best = np.sort(last)[-2:]
            ids.append(int(last.argmax()))
            margin.append(best - second)
        greedy.append(ids[len(prompt) :])
        margins.append(margin)
    tokens = {"greedy": np.array(greedy, dtype=np.int32), "greedy_margin": np.array(margins, dtype=np.float32)}
    return arrays | {"logits": logits} | tokens


def rewrite_config(path: Path) -> None:
    """Spell config.json as transformers 4 did: rope_theta and rope_scaling apart, torch_dtype."""
    config = json.loads(path.read_text())
    rope = config.pop("rope_parameters")
    config["rope_theta"] = rope.pop("rope_theta")
    config["rope_scaling"] = None if rope["rope_type"] == "default" else rope
    config["torch_dtype"] = config.pop("dtype")
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def save(model: transformers.PreTrainedModel, tiny: Tiny, folder: Path) -> None:
    """Write the model, in its stored type, and its tokenizer as a Hugging Face folder."""
    folder.mkdir(parents=True, exist_ok=True)
    model.generation_config = transformers.GenerationConfig.from_dict(
        {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0} | tiny.extra
    )
    model.to(tiny.dtype).save_pretrained(folder)
    if tiny.mxfp4:
        mxfp4.rewrite(folder)
    (folder / "model.safetensors").chmod(0o644)
    if tiny.old_spelling:
        rewrite_config(folder / "config.json")
    if tiny.tokenizer == "spm":
        tiny_tokenizers.write_spm(folder, model.config.vocab_size)
    elif tiny.tokenizer:
        tiny_tokenizers.write_bpe(folder, model.config.vocab_size, tiny.tokenizer)


def write_model(name: str, folder: Path) -> None:
    """Make the model called `name` in `folder`, and check that transformers reads back what was computed."""
    tiny = MODELS[name]
    model = random_model(tiny)
    answers = expected(model, random_prompts(tiny.seed, model.config.vocab_size))
    save(model, tiny, folder)
    np.savez_compressed(folder / "expected.npz", **answers)
    check(name, folder, answers)


def check(name: str, folder: Path, answers: dict[str, np.ndarray]) -> None:
    """Load the folder afresh and compare; print how well the answers discriminate."""
    again = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    ids = answers["prompts"][-1].tolist()
    np.testing.assert_array_equal(forward(again.eval(), ids), answers["logits"][-1])
    assert answers["greedy_margin"].min() > 0.04, f"{name}: nearly a tie in the greedy choices; change the seed"
    distinct = len(np.unique(answers["greedy"]))
    size = (folder / "model.safetensors").stat().st_size
    tensors = {str(t.dtype) for t in load_file(folder / "model.safetensors").values()}
    print(
        f"{name:16} {size:7} B {sorted(tensors)} logits std {answers['logits'][-1].std():.2f}"
        f" distinct greedy {distinct} least margin {answers['greedy_margin'].min():.3f}"
    )


def main() -> None:
    """Make the models named on the command line, or all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("names", nargs="*", default=[])
    args = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    for name in args.names or MODELS:
        write_model(name, args.out / name)


if __name__ == "__main__":
    main()
