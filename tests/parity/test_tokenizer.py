"""Token ids against llama.cpp's (see make/), and both kinds of file against each other."""

import json
from pathlib import Path
from typing import Any

import pytest

from headway.model.tokenizer import Tokenizer, load_tokenizer

Cases = list[dict[str, Any]]  # text, ids, ids_special: with names of special tokens taken as such


def check(tokenizer: Tokenizer, cases: Cases) -> None:
    ids = tokenizer.encode_batch([case["text"] for case in cases], add_special=False)
    for case, found in zip(cases, ids, strict=True):
        assert found.tolist() == case["ids_special"], case["text"]
    assert len(cases) >= 50


def test_the_default_model(default_model: Path, parity_fixtures: Path) -> None:
    check(load_tokenizer(default_model), json.loads((parity_fixtures / "smollm2_tokens.json").read_text()))


@pytest.mark.parametrize(
    ("file", "folder"),
    [("llama_llama3-f32", "llama_llama3"), ("mistral-f16", "mistral_window"), ("qwen2-f16", "qwen2")],
)
def test_each_kind_of_vocabulary(file: str, folder: str, parity_fixtures: Path) -> None:
    cases = json.loads((parity_fixtures / "gguf" / "tokens.json").read_text())[file]
    ours = load_tokenizer(parity_fixtures / "gguf" / f"{file}.gguf")
    theirs = load_tokenizer(parity_fixtures / "hf" / folder)
    check(ours, cases)
    check(theirs, cases)
    texts = [case["text"] for case in cases]
    assert ours.encode_batch(texts, add_special=True) == theirs.encode_batch(texts, add_special=True)
    assert all(ours.token_bytes(index) == theirs.token_bytes(index) for index in range(ours.vocab_size))
