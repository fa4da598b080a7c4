"""What llama.cpp itself answers on a GGUF file: logits, tokens and quantised copies, through llama-cpp-python.

Logits come from the CPU backend, one sequence at a time in one batch, flash attention off, and an F32 KV cache
(its default, F16, would add rounding that says nothing about the weights). llama.cpp rounds the activations of
a matrix product to the type that goes with the weights: F16 for F16, BF16 for BF16, Q8_0 or Q8_1 for the older
quants, Q8_K for the k-quants; so only on F32 files are its logits exact. Needs llama-cpp-python (MIT).
"""

import ctypes
from pathlib import Path

import llama_cpp
import numpy as np

F32 = 0  # GGML_TYPE_F32


@llama_cpp.llama_log_callback
def silent(_level: int, _text: bytes, _data: ctypes.c_void_p) -> None:
    """Take llama.cpp's log messages and drop them."""


llama_cpp.llama_log_set(silent, ctypes.c_void_p(0))


def open_model(path: Path, context: int = 512, threads: int = 2) -> llama_cpp.Llama:
    """The file, ready to give the logits of every position."""
    return llama_cpp.Llama(
        str(path),
        n_ctx=context,
        n_batch=context,
        n_ubatch=context,
        n_threads=threads,
        n_threads_batch=threads,
        logits_all=True,
        flash_attn=False,
        type_k=F32,
        type_v=F32,
        verbose=False,
    )


def logits(model: llama_cpp.Llama, ids: list[int]) -> np.ndarray:
    """Logits [len(ids), vocab] of one fresh sequence."""
    model.reset()
    model.eval(ids)
    return model.scores[: len(ids)].copy()


def tokens(model: llama_cpp.Llama, text: str, special: bool) -> list[int]:
    """The ids of `text` without BOS; `special` says whether names of special tokens are taken as such."""
    return model.tokenize(text.encode(), add_bos=False, special=special)


def quantize(source: Path, target: Path, ftype: int, tensor_type: int) -> None:
    """Quantise every matrix, embedding and output included, to one type (`llama-quantize --pure`)."""
    params = llama_cpp.llama_model_quantize_default_params()
    params.nthread = 1
    params.ftype = ftype
    params.pure = True
    params.output_tensor_type = tensor_type
    params.token_embedding_type = tensor_type
    if llama_cpp.llama_model_quantize(str(source).encode(), str(target).encode(), ctypes.byref(params)):
        raise RuntimeError(f"cannot quantise {source}")
