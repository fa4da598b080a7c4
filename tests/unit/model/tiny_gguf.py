"""A one-layer llama in GGUF, written with the `gguf` package, which is not what reads it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

Tensors = dict[str, NDArray[Any]]

HIDDEN, HEADS, KV_HEADS, HEAD_DIM, FFN, VOCAB = 32, 4, 2, 8, 64, 40


def llama_metadata() -> dict[str, Any]:
    return {
        "llama.block_count": 1,
        "llama.context_length": 128,
        "llama.embedding_length": HIDDEN,
        "llama.feed_forward_length": FFN,
        "llama.attention.head_count": HEADS,
        "llama.attention.head_count_kv": KV_HEADS,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.rope.freq_base": 10000.0,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": [*(chr(ord("0") + index) for index in range(VOCAB - 1)), "01"],
        "tokenizer.ggml.merges": ["0 1"],
    }


def llama_tensors() -> Tensors:
    random = np.random.default_rng(0)

    def normal(*shape: int) -> NDArray[np.float32]:
        return random.standard_normal(shape, np.float32)

    return {
        "token_embd.weight": normal(VOCAB, HIDDEN),
        "blk.0.attn_norm.weight": normal(HIDDEN),
        "blk.0.attn_q.weight": normal(HEADS * HEAD_DIM, HIDDEN),
        "blk.0.attn_k.weight": normal(KV_HEADS * HEAD_DIM, HIDDEN),
        "blk.0.attn_v.weight": normal(KV_HEADS * HEAD_DIM, HIDDEN),
        "blk.0.attn_output.weight": normal(HIDDEN, HEADS * HEAD_DIM),
        "blk.0.ffn_norm.weight": normal(HIDDEN),
        "blk.0.ffn_gate.weight": normal(FFN, HIDDEN),
        "blk.0.ffn_up.weight": normal(FFN, HIDDEN),
        "blk.0.ffn_down.weight": normal(HIDDEN, FFN),
        "output_norm.weight": normal(HIDDEN),
    }


def write_gguf(
    path: Path,
    metadata: Mapping[str, Any],
    tensors: Mapping[str, NDArray[Any]],
    architecture: str = "llama",
    types: Mapping[str, gguf.GGMLQuantizationType] | None = None,
) -> Path:
    """`types`: of tensors that are quantised."""
    writer = gguf.GGUFWriter(path, architecture)
    for key, value in metadata.items():
        if isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, int):
            writer.add_uint32(key, value)
        elif isinstance(value, float):
            writer.add_float32(key, value)
        elif isinstance(value, str):
            writer.add_string(key, value)
        else:
            writer.add_array(key, value)
    for name, value in tensors.items():
        writer.add_tensor(name, value, raw_dtype=(types or {}).get(name))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
