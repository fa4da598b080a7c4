import pytest
from hypothesis import given
from hypothesis import strategies as st
from server_rig import END_ID, make_text

from headway.core.events import Finish, TokenLogprobs
from headway.model.detokenizer import Detokenizer
from headway.serving.text_stream import TextStream

TEXT = make_text()


def ids(text: str) -> list[int]:
    return list(TEXT.tokenizer.encode(text, add_special=False))


def stream(*stops: str, logprobs: bool = False) -> TextStream:
    return TextStream(Detokenizer(TEXT.tokenizer), stops, logprobs)


def run(made: TextStream, steps: list[list[int]], finish: Finish) -> tuple[str, list[int], list[float]]:
    """Text, ids and logprobs of all deltas; a token's logprob is minus its index."""
    text, tokens, probs, index = "", [], [], 0
    for i, step in enumerate(steps):
        logprobs = [TokenLogprobs(-float(index + n), []) for n in range(len(step))]
        index += len(step)
        delta = made.push(step, logprobs, finish if i == len(steps) - 1 else None)
        if delta is not None:
            assert delta.text or delta.logprobs
            text += delta.text
            tokens += delta.token_ids
            probs += [entry.logprob for entry in delta.logprobs or []]
        if made.stopped:
            break
    return text, tokens, probs


def test_plain_text_comes_at_once() -> None:
    made = stream()
    delta = made.push(ids("hi"))
    assert delta is not None and (delta.text, delta.token_ids, delta.logprobs) == ("hi", ids("hi"), None)


def test_characters_wait_for_their_bytes_and_bring_their_tokens() -> None:
    made = stream(logprobs=True)
    tokens = ids("\N{GRINNING FACE}")
    assert [made.push([token], [TokenLogprobs(-1.0, [])]) for token in tokens[:3]] == [None] * 3
    delta = made.push(tokens[3:], [TokenLogprobs(-2.0, [])])
    assert delta is not None and delta.text == "\N{GRINNING FACE}" and delta.token_ids == tokens
    assert delta.logprobs is not None and len(delta.logprobs) == 4


def test_unfinished_character_is_flushed() -> None:
    tokens = ids("\N{GRINNING FACE}")[:2]
    assert run(stream(), [[t] for t in tokens], Finish.LENGTH)[0] == "�"


def test_end_token_counts_but_gives_nothing() -> None:
    made = stream(logprobs=True)
    assert run(made, [ids("ab"), [END_ID]], Finish.STOP) == ("ab", ids("ab"), [-0.0, -1.0])
    assert made.tokens == 3


def test_stop_token_that_has_text_gives_none() -> None:
    made = stream("never")
    assert run(made, [ids("abc")], Finish.STOP)[0] == "ab"


@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_stop_string_over_token_borders(size: int) -> None:
    tokens = ids("one STOP two")
    made = stream("STOP", "XX", logprobs=True)
    text, released, probs = run(made, [tokens[i : i + size] for i in range(0, len(tokens), size)], Finish.LENGTH)
    assert text == "one " and made.stopped
    assert released == ids("one ") and len(probs) == 4
    assert made.tokens == len("one STOP")  # nothing after the stop counts


def test_hold_is_released_when_ruled_out() -> None:
    made = stream("STOP")
    assert made.push(ids("ST")) is None
    delta = made.push(ids("A"))
    assert delta is not None and (delta.text, delta.token_ids) == ("STA", ids("STA"))


@pytest.mark.parametrize("finish", [Finish.LENGTH, Finish.STOP])
def test_hold_is_flushed_at_the_end(finish: Finish) -> None:
    steps = [ids("a ST")] + ([[END_ID]] if finish is Finish.STOP else [])
    assert run(stream("STOP"), steps, finish)[0] == "a ST"


def test_a_stop_in_the_last_token_wins_over_length() -> None:
    made = stream("b")
    assert run(made, [ids("a"), ids("b")], Finish.LENGTH)[0] == "a"
    assert made.stopped


def test_textless_tokens_at_the_end_bring_their_logprobs() -> None:
    assert run(stream(logprobs=True), [ids("a"), [END_ID]], Finish.LENGTH) == ("a", [*ids("a"), END_ID], [0.0, -1.0])
    assert stream().push([END_ID], finish=Finish.LENGTH) is None


@given(st.text(max_size=12), st.lists(st.text(min_size=1, max_size=3), max_size=3), st.integers(1, 5))
def test_text_and_ids_do_not_depend_on_the_steps(text: str, stops: list[str], size: int) -> None:
    tokens = ids(text)
    if not tokens:
        return
    whole = run(stream(*stops, logprobs=True), [tokens], Finish.LENGTH)
    split = [tokens[i : i + size] for i in range(0, len(tokens), size)]
    assert run(stream(*stops, logprobs=True), split, Finish.LENGTH) == whole
    assert all(stop not in whole[0] for stop in stops)
    assert text.startswith(whole[0])
