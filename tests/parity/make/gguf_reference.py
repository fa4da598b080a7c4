"""A GGUF file's weights, dequantised to float32, in a transformers model: the exact answer for that file.

Q and K rows of the `llama` architecture are stored permuted by llama.cpp's converter (rotary pairs adjacent);
here they are put back, since transformers rotates halves. Needs torch, transformers, gguf, tokenizers.
"""

from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from gguf import GGUFReader
from gguf.quants import dequantize
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

CONTROL = 3  # the GGUF token type of special tokens
NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def metadata(reader: GGUFReader) -> dict[str, Any]:
    """All key-value pairs of the file as Python values."""
    return {key: value.contents() for key, value in reader.fields.items()}


def hf_name(name: str) -> str:
    """`blk.0.attn_q.weight` -> `model.layers.0.self_attn.q_proj.weight`."""
    *block, base, kind = name.split(".")
    prefix = f"model.layers.{block[1]}." if block else ""
    return f"{prefix}{NAMES[base]}.{kind}"


def unpermute(rows: np.ndarray, heads: int) -> np.ndarray:
    """Undo the converter's permutation of rotary rows: adjacent pairs back to halves."""
    shape = rows.shape
    return rows.reshape(heads, shape[0] // heads // 2, 2, *shape[1:]).swapaxes(1, 2).reshape(shape)


def weights(reader: GGUFReader) -> dict[str, torch.Tensor]:
    """The state dict in float32, under Hugging Face names and in Hugging Face order."""
    meta = metadata(reader)
    arch = meta["general.architecture"]
    heads = {"attn_q": meta[f"{arch}.attention.head_count"], "attn_k": meta[f"{arch}.attention.head_count_kv"]}
    state = {}
    for tensor in reader.tensors:
        if tensor.name == "rope_freqs.weight":
            continue
        value = dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        base = tensor.name.split(".")[-2]
        if arch == "llama" and base in heads:
            value = unpermute(value, heads[base])
        state[hf_name(tensor.name)] = torch.from_numpy(np.array(value))
    return state


def llama_config(reader: GGUFReader) -> transformers.LlamaConfig:
    """The configuration of a `llama` file without rotary scaling, from its metadata alone."""
    meta = {key.removeprefix("llama."): value for key, value in metadata(reader).items()}
    return transformers.LlamaConfig(
        vocab_size=meta["vocab_size"],
        hidden_size=meta["embedding_length"],
        intermediate_size=meta["feed_forward_length"],
        num_hidden_layers=meta["block_count"],
        num_attention_heads=meta["attention.head_count"],
        num_key_value_heads=meta["attention.head_count_kv"],
        head_dim=meta["rope.dimension_count"],
        max_position_embeddings=meta["context_length"],
        rms_norm_eps=meta["attention.layer_norm_rms_epsilon"],
        rope_parameters={"rope_type": "default", "rope_theta": meta["rope.freq_base"]},
        tie_word_embeddings=all(tensor.name != "output.weight" for tensor in reader.tensors),
    )


def load(path: Path, config: transformers.PretrainedConfig | None = None) -> transformers.PreTrainedModel:
    """The file as a float32 model with eager attention; `config` is read from the file when not given."""
    reader = GGUFReader(path)
    config = config or llama_config(reader)
    config._attn_implementation = "eager"
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    missing, unexpected = model.load_state_dict(weights(reader), strict=False)
    if unexpected or set(missing) - {"lm_head.weight"} or (missing and not config.tie_word_embeddings):
        raise ValueError(f"{path}: missing {missing}, unexpected {unexpected}")
    return model.eval()


def smollm_tokenizer(path: Path) -> Tokenizer:
    """SmolLM's Hugging Face tokenizer (single digits, then GPT-2's byte-level split) on the file's own vocabulary."""
    meta = {key.removeprefix("tokenizer.ggml."): value for key, value in metadata(GGUFReader(path)).items()}
    vocab = {token: i for i, token in enumerate(meta["tokens"])}
    tokenizer = Tokenizer(models.BPE(vocab, [tuple(pair.split(" ")) for pair in meta["merges"]]))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    special = [token for token, kind in zip(meta["tokens"], meta["token_type"], strict=True) if kind == CONTROL]
    tokenizer.add_special_tokens([AddedToken(token, normalized=False) for token in special])
    return tokenizer
