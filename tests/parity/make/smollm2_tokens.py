"""The default model's token ids of varied texts, as llama.cpp and its Hugging Face tokenizer both give them.

OUT.json holds a list of {"text", "ids", "ids_special"}: without BOS, names of special tokens read as plain text
and as special tokens. Texts on which llama.cpp and Hugging Face differ carry "hf_ids" / "hf_ids_special" too.

    python smollm2_tokens.py MODEL.gguf OUT.json

The Hugging Face tokenizer is put together from the file's own vocabulary and merges (see gguf_reference.py).
"""

import argparse
import json
from pathlib import Path
from typing import Any

import gguf_reference
import llama_cpp
import llama_cpp_reference
from texts import TEXTS
from tokenizers import Tokenizer


def entry(model: llama_cpp.Llama, hf: Tokenizer, text: str) -> dict[str, Any]:
    """One text and its ids."""
    result: dict[str, Any] = {"text": text}
    for key, special in (("ids", False), ("ids_special", True)):
        result[key] = llama_cpp_reference.tokens(model, text, special)
        hf.encode_special_tokens = not special
        theirs = hf.encode(text).ids
        if theirs != result[key]:
            result["hf_" + key] = theirs
    return result


def write(entries: list[dict[str, Any]], path: Path) -> None:
    """One entry a line."""
    lines = ",\n".join(json.dumps(item) for item in entries)
    path.write_text(f"[\n{lines}\n]\n", encoding="utf-8")


def main() -> None:
    """Write OUT.json and say where the two tokenizers differ."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("gguf", type=Path)
    parser.add_argument("out", type=Path)
    args = parser.parse_args()
    model = llama_cpp.Llama(str(args.gguf), vocab_only=True, verbose=False)
    hf = gguf_reference.smollm_tokenizer(args.gguf)
    entries = [entry(model, hf, text) for text in TEXTS]
    write(entries, args.out)
    for item in entries:
        if "hf_ids" in item or "hf_ids_special" in item:
            print("differs:", item)
    print(len(entries), "texts")


if __name__ == "__main__":
    main()
