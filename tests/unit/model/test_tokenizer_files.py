"""Tokenizers from each kind of file. That their ids are right is tests/parity/test_tokenizer.py's matter."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.core.errors import InvalidRequest, ModelError
from headway.model.gguf_tokenizer import merges_of_scores
from headway.model.pre_tokenizers import SPLITS
from headway.model.tokenizer import Tokenizer, load_tokenizer

ModelWriter = Callable[..., Path]


@pytest.fixture(scope="module")
def smollm(default_model: Path) -> Tokenizer:
    return load_tokenizer(default_model)


@pytest.fixture(scope="module")
def mistral(parity_fixtures: Path) -> Tokenizer:
    return load_tokenizer(parity_fixtures / "hf" / "mistral_window")


def test_the_default_tokenizer(smollm: Tokenizer) -> None:
    assert (smollm.vocab_size, smollm.bos_id, smollm.end_ids) == (49152, 1, (0, 2))
    assert smollm.encode("Hello", add_special=True) == smollm.encode("Hello", add_special=False)
    assert smollm.id_of("<|im_end|>") == 2
    assert smollm.id_of("nothing of the kind") is None
    assert smollm.encode("a<|im_end|>", add_special=False)[-1] == 2
    assert smollm.encode("a", add_special=False).typecode == "I"


# Bytes for which SmolLM2's vocabulary has no token; its own tokenizer drops them too.
DROPPED = bytes([0x04, 0x06, 0x13, 0x14, 0x16, 0x1D, 0xC0, 0xC1, 0xF1, 0xF2, *range(0xF5, 0x100)])


@settings(max_examples=60)
@given(text=st.text(max_size=60))
def test_bytes_of_the_tokens_are_the_text(smollm: Tokenizer, text: str) -> None:
    ids = smollm.encode(text, add_special=False)
    if not set(ids) & set(range(17)):  # special tokens have no bytes
        expected = text.encode().translate(None, DROPPED)
        assert b"".join(map(smollm.token_bytes, ids)) == expected
        assert smollm.decode(ids) == expected.decode(errors="replace")


@settings(max_examples=60)
@given(text=st.text(max_size=60))
def test_sentencepiece_puts_a_space_in_front(mistral: Tokenizer, text: str) -> None:
    ids = mistral.encode(text, add_special=False)
    if text and not set(ids) & {0, 1, 2}:
        assert mistral.decode(ids) == " " + text.replace("▁", " ")


def test_odd_ids_have_no_bytes(smollm: Tokenizer, mistral: Tokenizer) -> None:
    for tokenizer in (smollm, mistral):
        assert tokenizer.token_bytes(tokenizer.vocab_size) == b""
        assert tokenizer.token_bytes(2) == b""
    assert {mistral.token_bytes(index) for index in range(mistral.vocab_size)} >= {bytes([n]) for n in range(256)}


def test_batches_equal_single_texts(smollm: Tokenizer) -> None:
    texts = ["", "one", "two words", "三"]
    assert smollm.encode_batch(texts, add_special=True) == [smollm.encode(text, add_special=True) for text in texts]


def test_a_lone_surrogate_is_the_clients_fault(smollm: Tokenizer) -> None:
    with pytest.raises(InvalidRequest, match="surrogate"):
        smollm.encode("a\ud800", add_special=False)


def test_bos_is_added_where_the_model_wants_it(mistral: Tokenizer, copy_model: ModelWriter) -> None:
    assert mistral.encode("a", add_special=True)[0] == mistral.bos_id == 1
    assert mistral.encode("a", add_special=False)[0] != 1
    changed = load_tokenizer(
        copy_model("mistral_window", tokenizer_config={"add_bos_token": False, "add_eos_token": True})
    )
    ids = changed.encode("a", add_special=True)
    assert ids[0] != 1
    assert ids[-1] == 2


@pytest.mark.parametrize("name", SPLITS)
def test_every_split_compiles_and_loses_nothing(name: str, make_gguf: ModelWriter) -> None:
    alphabet = [chr(0x100 + n) for n in range(256)] + [chr(n) for n in range(0x21, 0x100)]
    tokens, merges = [*dict.fromkeys(alphabet), "ab"], ["a b"]
    tokenizer = load_tokenizer(
        make_gguf({"tokenizer.ggml.pre": name, "tokenizer.ggml.tokens": tokens, "tokenizer.ggml.merges": merges})
    )
    text = "It's 12345 naïve\u00a0tests,  don't\r\n\n\tFAIL 日本語 カタカナ ᄀ 👍🏽 #[x] "
    assert tokenizer.decode(tokenizer.encode(text, add_special=False)) == text


SPLIT_TEXT = "I'LL pay 12345$ ok\n\n x"


@pytest.mark.parametrize(
    ("name", "pieces"),
    [
        ("gpt-2", ["I", "'", "LL", " pay", " 12345", "$", " ok", "\n\n", " x"]),
        ("smollm", ["I", "'", "LL", " pay", " ", "1", "2", "3", "4", "5", "$", " ok", "\n\n", " x"]),
        ("llama-bpe", ["I", "'LL", " pay", " ", "123", "45", "$", " ok", "\n\n", " x"]),
        ("dbrx", ["I", "'LL", " pay", " ", "123", "45", "$", " ok", "\n\n", " x"]),
        ("gpt-4o", ["I'LL", " pay", " ", "123", "45", "$", " ok", "\n\n", " x"]),
        ("refact", ["I", "'", "LL", " pay", " ", "1", "2", "3", "4", "5", "$", " ok", "\n\n", " x"]),
        ("qwen2", ["I", "'LL", " pay", " ", "1", "2", "3", "4", "5", "$", " ok", "\n\n", " x"]),
        ("tekken", ["I", "'LL", " pay", " ", "1", "2", "3", "4", "5", "$", " ok", "\n\n", " x"]),
        ("deepseek-v3", ["I", "'LL", " pay", " ", "123", "45", "$", " ok", "\n\n", " x"]),
    ],
)
def test_splits(name: str, pieces: list[str]) -> None:
    found = [SPLIT_TEXT[begin:end] for _, (begin, end) in SPLITS[name].build().pre_tokenize_str(SPLIT_TEXT)]
    assert found == pieces


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"tokenizer.ggml.pre": "martian"}, "pre martian is not supported"),
        ({"tokenizer.ggml.model": "bert"}, "model bert is not supported"),
        ({"tokenizer.ggml.tokens": None}, "has no tokenizer"),
        ({"tokenizer.ggml.merges": None}, "merges is missing"),
        ({"tokenizer.ggml.merges": ["0 zz"]}, "merges do not fit"),
        ({"tokenizer.ggml.merges": ["01 "]}, "merges do not fit"),
        ({"tokenizer.ggml.token_type": [1, 1]}, "token_type has 2 entries"),
        ({"tokenizer.ggml.model": "llama"}, "scores must be given"),
        ({"tokenizer.ggml.bos_token_id": 40, "tokenizer.ggml.add_bos_token": True}, "bos_token_id 40 is not one of"),
    ],
)
def test_what_is_wrong_with_a_gguf_tokenizer_is_said(
    make_gguf: ModelWriter, metadata: Mapping[str, Any], message: str
) -> None:
    with pytest.raises(ModelError, match=message):
        load_tokenizer(make_gguf(metadata))


def test_what_is_wrong_with_a_folder_is_said(copy_model: ModelWriter) -> None:
    path = copy_model("mistral_window") / "tokenizer.json"
    content = json.loads(path.read_text())
    content["decoder"] = {"type": "WordPiece", "prefix": "##", "cleanup": True}
    path.write_text(json.dumps(content))
    with pytest.raises(ModelError, match="neither byte-level nor SentencePiece"):
        load_tokenizer(path.parent)
    path.write_text("{}")
    with pytest.raises(ModelError, match=r"tokenizer\.json cannot be read"):
        load_tokenizer(path.parent)
    path.unlink()
    with pytest.raises(ModelError, match=r"no tokenizer\.json; tokenizer\.model alone"):
        load_tokenizer(path.parent)


def test_merges_come_in_order_of_their_unions_scores() -> None:
    tokens = ["a", "b", "ab", "bb", "abb"]
    assert merges_of_scores(tokens, [-9, -9, -2, -1, -3]) == [("b", "b"), ("a", "b"), ("ab", "b"), ("a", "bb")]


@settings(max_examples=60)
@given(text=st.text(max_size=60))
def test_exact_tokens_spell_the_text_and_nothing_else(smollm: Tokenizer, mistral: Tokenizer, text: str) -> None:
    """No space in front, and no special token for its name."""
    for tokenizer in (smollm, mistral):
        exact = tokenizer.exact()
        for spelled in (text, "<|im_end|></s>" + text):
            ids = exact.encode(spelled, add_special_tokens=False).ids
            assert not any(map(tokenizer.is_special, ids))
            plain = spelled.replace("▁", " ").encode()
            expected = spelled.encode().translate(None, DROPPED) if tokenizer is smollm else plain
            assert b"".join(map(tokenizer.token_bytes, ids)) == expected


def test_an_exact_tokenizer_has_the_same_ids(smollm: Tokenizer, mistral: Tokenizer) -> None:
    for tokenizer in (smollm, mistral):
        exact = tokenizer.exact()
        assert exact.get_vocab_size() == tokenizer.vocab_size
        assert [exact.id_to_token(i) for i in range(tokenizer.vocab_size)] == list(
            map(tokenizer.name_of, range(tokenizer.vocab_size))
        )
