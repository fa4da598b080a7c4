"""A stream's text is the whole's text, however it is cut."""

import timeit
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.model.detokenizer import Detokenizer
from headway.model.tokenizer import Tokenizer, load_tokenizer


@pytest.fixture(scope="module", params=["smollm", "sentencepiece"])
def tokenizer(request: pytest.FixtureRequest, default_model: Path, parity_fixtures: Path) -> Tokenizer:
    return load_tokenizer(default_model if request.param == "smollm" else parity_fixtures / "hf" / "mistral_window")


def pushed(tokenizer: Tokenizer, ids: list[int], cuts: list[int]) -> list[str]:
    stream, texts, begin = Detokenizer(tokenizer), [], 0
    for end in [*sorted(cut % (len(ids) + 1) for cut in cuts), len(ids)]:
        texts.append(stream.push(ids[begin:end]))
        begin = end
    return [*texts, stream.flush()]


@settings(max_examples=150)
@given(ids=st.lists(st.integers(0, 319), max_size=40), cuts=st.lists(st.integers(0, 1000), max_size=12))
def test_any_split_of_any_ids_gives_the_same_text(tokenizer: Tokenizer, ids: list[int], cuts: list[int]) -> None:
    assert "".join(pushed(tokenizer, ids, cuts)) == tokenizer.decode(ids)


@settings(max_examples=100)
@given(text=st.text(st.characters(max_codepoint=0xFFFF, exclude_categories=["Cs"]), max_size=40))
def test_no_half_character_is_ever_sent(tokenizer: Tokenizer, text: str) -> None:
    ids = list(tokenizer.encode(text.replace("\ufffd", ""), add_special=False))
    assert "\ufffd" not in "".join(pushed(tokenizer, ids, list(range(len(ids)))))


def test_characters_spread_over_tokens_wait_for_their_rest(default_model: Path) -> None:
    tokenizer = load_tokenizer(default_model)
    stream, ids = Detokenizer(tokenizer), tokenizer.encode("🫠", add_special=False)  # not a token of its own
    assert len(ids) > 1
    assert [stream.push([index]) for index in ids] == [""] * (len(ids) - 1) + ["🫠"]
    assert stream.flush() == ""


def test_an_unfinished_character_is_replaced_at_the_end(default_model: Path) -> None:
    tokenizer = load_tokenizer(default_model)
    stream, ids = Detokenizer(tokenizer), tokenizer.encode("🫠", add_special=False)
    assert stream.push(ids[:-1]) == ""
    assert stream.flush() == "\ufffd"


def test_bytes_that_are_no_text_are_not_held_back(parity_fixtures: Path) -> None:
    tokenizer = load_tokenizer(parity_fixtures / "hf" / "mistral_window")
    byte = {tokenizer.token_bytes(index): index for index in range(tokenizer.vocab_size)}
    stream = Detokenizer(tokenizer)
    assert stream.push([byte[b"\xf0"]] * 9) == "\ufffd" * 8
    assert stream.push([byte[b"a"]]) == "\ufffda"


def test_a_leading_space_is_kept(parity_fixtures: Path) -> None:
    tokenizer = load_tokenizer(parity_fixtures / "hf" / "mistral_window")
    assert Detokenizer(tokenizer).push(tokenizer.encode("a", add_special=False)) == " a"


def test_special_tokens_have_no_text(default_model: Path) -> None:
    assert Detokenizer(load_tokenizer(default_model)).push([1, 2]) == ""


def test_it_is_cheap(default_model: Path) -> None:
    """A stream opens in microseconds and a token costs about one; generous bounds for a busy machine."""
    tokenizer = load_tokenizer(default_model)
    stream, ids = Detokenizer(tokenizer), [5000]
    assert min(timeit.repeat(lambda: Detokenizer(tokenizer), number=1000, repeat=5)) < 1000 * 20e-6
    assert min(timeit.repeat(lambda: stream.push(ids), number=1000, repeat=5)) < 1000 * 12e-6
