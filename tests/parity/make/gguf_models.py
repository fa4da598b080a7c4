"""Make tiny GGUF files with llama.cpp's own converter and quantiser, and what two references answer on them.

The models are random ones of hf_models.py (and three wider ones whose rows of 256 suit the k-quants), each
converted to F32 by convert_hf_to_gguf.py and quantised, every matrix alike, by llama.cpp. OUT gets NAME.gguf and
NAME.npz with

    prompts    int32   [3, 70]       token ids, padded with -1
    lengths    int32   [3]           5, 23, 70
    rows       int32   [18, 2]       (prompt, position) of the logits kept
    logits     float32 [18, vocab]   llama.cpp on the CPU (see llama_cpp_reference.py for how)
    reference  float32 [18, vocab]   transformers in float32 on the file's dequantised weights: the exact answer
    top1       int32   [3, 70]       argmax of the reference at every position, -1 where padded
    margin     float32 [3, 70]       the reference's best logit minus its second best

and tokens.json: for one file of each tokenizer, texts and their ids by llama.cpp without BOS (`ids`: names of
special tokens are plain text; `ids_special`: they are special tokens).

    python gguf_models.py LLAMA_CPP_CHECKOUT OUT [NAME ...]

Needs everything hf_models.py and llama_cpp_reference.py need, and gguf. Random numbers: no licence applies.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

import gguf_reference
import hf_models
import llama_cpp
import llama_cpp_reference
import numpy as np
import torch
import transformers
from gguf import GGMLQuantizationType, GGUFReader, LlamaFileType
from hf_models import MODELS, Tiny, plain
from texts import TEXTS

WIDE = {
    "hidden_size": 256,
    "intermediate_size": 256,
    "num_hidden_layers": 1,
    "num_key_value_heads": 1,
    "head_dim": 64,
    "tie_word_embeddings": True,
    "rope_parameters": plain(100000.0),
}
SOURCES: dict[str, Tiny] = {
    "llama_llama3": MODELS["llama_llama3"],
    "llama_linear": replace(MODELS["llama_linear"], tokenizer="spm"),
    "mistral": replace(MODELS["mistral_full"], tokenizer="spm"),
    "qwen2": MODELS["qwen2"],
    "qwen2_yarn": replace(MODELS["qwen2_yarn"], tokenizer="qwen2"),
    "qwen3_tied": replace(MODELS["qwen3_tied"], tokenizer="qwen2"),
    "llama_wide": Tiny("Llama", WIDE, seed=11, tokenizer="llama-bpe", scale=0.1),
    "qwen2_wide": Tiny("Qwen2", {k: v for k, v in WIDE.items() if k != "head_dim"}, 12, tokenizer="qwen2", scale=0.1),
    "qwen3_wide": Tiny("Qwen3", WIDE, seed=13, tokenizer="qwen2", scale=0.1),
}
FILES = [  # the files to commit: source and type
    ("llama_llama3", "F32"),
    ("llama_llama3", "Q8_0"),
    ("llama_llama3", "Q4_1"),
    ("llama_linear", "BF16"),
    ("llama_linear", "Q5_1"),
    ("mistral", "F16"),
    ("mistral", "Q4_0"),
    ("qwen2", "F16"),
    ("qwen2_yarn", "F32"),
    ("qwen2_yarn", "Q5_0"),
    ("qwen3_tied", "F32"),
    ("qwen3_tied", "Q8_0"),
    ("llama_wide", "Q4_K"),
    ("qwen2_wide", "Q5_K"),
    ("qwen3_wide", "Q6_K"),
]
FTYPES = {"F32": "ALL_F32", "Q4_K": "MOSTLY_Q4_K_M", "Q5_K": "MOSTLY_Q5_K_M"}  # others: MOSTLY_<type>
TOKENIZED = {"llama_llama3-f32": "llama-bpe", "mistral-f16": "spm", "qwen2-f16": "qwen2"}


def make_f32(name: str, checkout: Path, folder: Path) -> Path:
    """Write the source as a Hugging Face folder and let llama.cpp convert it to an F32 file."""
    tiny = SOURCES[name]
    hf_models.save(hf_models.random_model(tiny), tiny, folder)
    target = folder / "f32.gguf"
    script = Path(__file__).with_name("convert.py")
    options = ["--outtype", "f32", "--outfile", target, "--model-name", name]
    subprocess.run(
        [sys.executable, script, checkout, tiny.tokenizer, folder, *options], check=True, capture_output=True
    )
    return target


def quantized(source: Path, kind: str, target: Path) -> None:
    """Copy the F32 file to `target` with every matrix in one type."""
    ftype = LlamaFileType[FTYPES.get(kind, f"MOSTLY_{kind}")]
    llama_cpp_reference.quantize(source, target, ftype, GGMLQuantizationType[kind])


def kept_rows() -> np.ndarray:
    """(prompt, position) of every twelfth position and of the last three of each prompt."""
    keep = [(i, p) for i, n in enumerate(hf_models.LENGTHS) for p in range(n) if p % 12 == 0 or p >= n - 3]
    return np.array(keep, dtype=np.int32)


def answers(path: Path, name: str, config: transformers.PretrainedConfig) -> tuple[dict[str, np.ndarray], str]:
    """The arrays for NAME.npz, and a line comparing llama.cpp with the exact answer at every position."""
    tiny = SOURCES[name]
    prompts = hf_models.random_prompts(tiny.seed, config.vocab_size)
    exact_model = gguf_reference.load(path, config)
    llama = llama_cpp_reference.open_model(path, context=256)
    exact = [hf_models.forward(exact_model, ids) for ids in prompts]
    theirs = [llama_cpp_reference.logits(llama, ids) for ids in prompts]
    out = hf_models.padded(prompts) | {"rows": kept_rows()}
    out["logits"] = np.stack([theirs[i][p] for i, p in out["rows"]])
    out["reference"] = np.stack([exact[i][p] for i, p in out["rows"]])
    out["top1"] = np.full_like(out["prompts"], -1)
    out["margin"] = np.zeros(out["prompts"].shape, np.float32)
    for row, logits in enumerate(exact):
        best = np.sort(logits, axis=1)[:, -2:]
        out["top1"][row, : len(logits)] = logits.argmax(1)
        out["margin"][row, : len(logits)] = best[:, 1] - best[:, 0]
    difference = np.concatenate(theirs) - np.concatenate(exact)
    same = (np.concatenate(theirs).argmax(1) == np.concatenate(exact).argmax(1)).mean()
    line = f"max |d| {np.abs(difference).max():.2e} rms {np.sqrt((difference**2).mean()):.2e} same top1 {same:.3f}"
    return out, line


def tensor_types(path: Path) -> str:
    """Which types the matrices and the vectors of the file really have."""
    kinds = Counter((len(tensor.shape), tensor.tensor_type.name) for tensor in GGUFReader(path).tensors)
    return ", ".join(f"{n} x {kind} ({rank}-d)" for (rank, kind), n in sorted(kinds.items(), reverse=True))


def tokenized(path: Path) -> list[dict[str, object]]:
    """llama.cpp's ids of every text."""
    model = llama_cpp.Llama(str(path), vocab_only=True, verbose=False)
    return [
        {
            "text": text,
            "ids": llama_cpp_reference.tokens(model, text, special=False),
            "ids_special": llama_cpp_reference.tokens(model, text, special=True),
        }
        for text in TEXTS
    ]


def write_tokens(out: Path) -> None:
    """tokens.json: a text a line, for one file of each kind of tokenizer."""
    blocks = []
    for name in TOKENIZED:
        lines = ",\n".join(json.dumps(item) for item in tokenized(out / f"{name}.gguf"))
        blocks.append(f"{json.dumps(name)}: [\n{lines}\n]")
    (out / "tokens.json").write_text("{\n" + ",\n".join(blocks) + "\n}\n")


def main() -> None:
    """Make the files named on the command line, or all, and tokens.json with all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("llama_cpp", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("names", nargs="*", default=[])
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    for source, kind in FILES:
        name = f"{source}-{kind.lower()}"
        if args.names and name not in args.names:
            continue
        path = args.out / f"{name}.gguf"
        with tempfile.TemporaryDirectory() as folder:
            f32 = make_f32(source, args.llama_cpp, Path(folder))
            config = transformers.AutoConfig.from_pretrained(folder)
            quantized(f32, kind, path)
        arrays, line = answers(path, source, config)
        np.savez_compressed(path.with_suffix(".npz"), **arrays)
        print(f"{name:18} {path.stat().st_size:7} B {tensor_types(path)}; {line}", flush=True)
    if not args.names:
        write_tokens(args.out)


if __name__ == "__main__":
    main()
