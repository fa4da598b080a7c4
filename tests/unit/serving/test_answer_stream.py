"""Tokens to parts: stop strings, token counts and logprobs of answers that reason and call tools."""

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st
from server_rig import END_ID, make_text

from headway.core.events import Finish, TokenLogprobs
from headway.serving.answer_parser import AnswerParser
from headway.serving.answer_stream import AnswerStream
from headway.serving.text_events import AnswerDelta, Arguments, CallStart, Content, Reasoning

TEXT = make_text(template="<think></think>")
FORMAT = TEXT.answer_format
CALL = '<tool_call>\n{"name": "f", "arguments": {"x": "STOP"}}\n</tool_call>'


def ids(text: str) -> "array[int]":
    return TEXT.tokenizer.encode(text, add_special=False)


def stream(*stops: str, logprobs: bool = False, single: bool = False, prompt: str = "") -> AnswerStream:
    parser = AnswerParser(FORMAT, ("f",), lambda: "id", single=single)
    made = AnswerStream(TEXT, parser, stops, logprobs)
    made.begin(ids(prompt))
    return made


def run(made: AnswerStream, text: str, size: int = 1, finish: Finish = Finish.LENGTH) -> list[AnswerDelta]:
    tokens = [*ids(text), *([END_ID] if finish is Finish.STOP else [])]
    deltas = []
    for start in range(0, len(tokens), size):
        step = tokens[start : start + size]
        last = start + size >= len(tokens)
        delta = made.push(step, [TokenLogprobs(-1.0, []) for _ in step], finish if last else None)
        deltas += [delta] if delta is not None else []
        if made.stopped:
            break
    return deltas


def content(deltas: list[AnswerDelta]) -> str:
    return "".join(part.text for delta in deltas for part in delta.parts if isinstance(part, Content))


def reasoning(deltas: list[AnswerDelta]) -> str:
    return "".join(part.text for delta in deltas for part in delta.parts if isinstance(part, Reasoning))


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_stop_strings_cut_content_alone(size: int) -> None:
    made = stream("STOP")
    deltas = run(made, f"<think>a STOP b</think>\n\none {CALL} two STOP three", size)
    assert reasoning(deltas) == "a STOP b"
    assert content(deltas) == "one two "
    assert any(isinstance(part, CallStart) for delta in deltas for part in delta.parts)
    assert made.stopped and made.called
    assert "".join(delta.text for delta in deltas) == "one two "


def test_a_stop_string_is_not_found_over_a_call() -> None:
    made = stream("ab")
    assert content(run(made, f"a{CALL}b")) == "ab" and not made.stopped


@pytest.mark.parametrize("finish", [Finish.LENGTH, Finish.STOP])
def test_what_is_held_comes_at_the_end(finish: Finish) -> None:
    assert content(run(stream("STOP"), "one ST", finish=finish)) == "one ST"
    assert content(run(stream(), "one <tool_c", finish=finish)) == "one <tool_c"


@pytest.mark.parametrize("size", [1, 2, 1000])
@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("hello", 0),
        ("<think>hm</think>hello", len("<think>hm</think>")),
        (" <think>hm", len(" <think>hm")),
        ("<think", 0),
        ("hi <think>hm</think>", 0),
    ],
)
def test_reasoning_tokens_are_those_up_to_its_end(text: str, count: int, size: int) -> None:
    made = stream()
    run(made, text, size)
    assert (made.reasoning_tokens, made.tokens) == (count, len(text))


def test_a_prompt_that_opens_the_reasoning() -> None:
    made = stream(prompt="<assistant>\n<think>\n")
    deltas = run(made, "hm</think>Hi", finish=Finish.STOP)
    assert (reasoning(deltas), content(deltas)) == ("hm", "Hi")
    assert made.reasoning_tokens == len("hm</think>")
    assert content(run(stream(prompt="<think>\n\n</think>\n\n"), "Hi")) == "Hi"


def test_at_most_one_call_ends_the_generation() -> None:
    made = stream(single=True)
    deltas = run(made, f"{CALL}\n{CALL}")
    parts = [part for delta in deltas for part in delta.parts]
    assert sum(isinstance(part, CallStart) for part in parts) == 1
    assert "".join(p.text for p in parts if isinstance(p, Arguments)) == '{"x": "STOP"}'
    assert made.stopped and made.called
    assert made.tokens == CALL.index("\n</tool_call>")  # what comes later does not count


@given(st.sampled_from(["<think>hm</think>\n\nHi", f"Hi {CALL}", "Hi there", f"{CALL}{CALL} x"]), st.integers(1, 9))
def test_every_token_has_its_logprob(text: str, size: int) -> None:
    deltas = run(stream(logprobs=True), text, size, Finish.STOP)
    assert [token for delta in deltas for token in delta.token_ids] == list(ids(text))
    assert sum(len(delta.logprobs or ()) for delta in deltas) == len(ids(text))


OBJECT = '{"name": "f", "arguments": {}}'
BITS = ["<think>", "</think>", "<tool_call>", "</tool_call>", OBJECT, CALL, "STOP", "ST", "OP", " ", "x"]


@given(st.lists(st.sampled_from(BITS), max_size=9).map("".join), st.integers(1, 9), st.booleans(), st.booleans())
def test_answers_do_not_depend_on_the_steps(text: str, size: int, stops: bool, single: bool) -> None:
    def outcome(size: int) -> tuple[object, ...]:
        made = stream(*(["STOP", "x "] if stops else []), single=single)
        deltas = run(made, text, size)
        parts = [part for delta in deltas for part in delta.parts]
        calls = [part for part in parts if isinstance(part, CallStart)]
        arguments = ["".join(p.text for p in parts if isinstance(p, Arguments) and p.index == c.index) for c in calls]
        counts = made.tokens, made.reasoning_tokens, made.called, made.stopped
        return content(deltas), reasoning(deltas), calls, arguments, counts

    whole = outcome(1)
    assert outcome(size) == whole
    assert not stops or "STOP" not in str(whole[0])
