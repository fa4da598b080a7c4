"""Parts of answers in every family's format, however the text is cut."""

import json
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.model.answer_format import HERMES, STYLES, AnswerFormat, CallStyle
from headway.serving.answer_parser import AnswerParser
from headway.serving.text_events import Arguments, CallStart, Content, Part, Reasoning

STYLE = {style.name: style for style in STYLES}
THINK = ("<think>", "</think>")
ONE = '{"name": "f", "arguments": {"x": 1}}'
NAMES = ("f", "g")


def form(style: CallStyle = HERMES, thinking: tuple[str, str] | None = None) -> AnswerFormat:
    return AnswerFormat(style, True, thinking, {})


def parse(
    pieces: list[str],
    format: AnswerFormat,
    names: tuple[str, ...] = NAMES,
    *,
    inside: bool = False,
    single: bool = False,
) -> tuple[list[Part], AnswerParser]:
    serial = count()
    parser = AnswerParser(format, names, lambda: f"id{next(serial)}", single=single)
    if inside:
        parser.begin_in_reasoning()
    parts = [part for piece in pieces for part in parser.push(piece)]
    return joined(parts + parser.finish() if not parser.closed else parts), parser


def joined(parts: list[Part]) -> list[Part]:
    """Neighbours of one kind as one."""
    result: list[Any] = []
    for part in parts:
        assert isinstance(part, CallStart) or part.text
        last = result[-1] if result else None
        same = type(last) is type(part) and getattr(last, "index", None) == getattr(part, "index", None)
        if same and not isinstance(part, CallStart):
            result[-1] = type(part)(
                **{**{f: getattr(part, f) for f in part.__struct_fields__}, "text": last.text + part.text}
            )
        else:
            result.append(part)
    return result


def call(index: int, name: str, arguments: str) -> list[Part]:
    return [CallStart(index, f"id{index}", name), Arguments(index, arguments)]


UNKNOWN = 'x\n<tool_call>\n{"name": "h", "arguments": {}}\n</tool_call>\n'
TRICKY = '{"s": "</tool_call>"}'
NEWER = '[TOOL_CALLS]f[ARGS]{}[TOOL_CALLS]g[CALL_ID]abcdefghi[ARGS]{"y":2}'
TWO_OBJECTS = '{"name": "f", "parameters": {}}; {"name": "g", "parameters": {}}'
HERMES_TEXT = f"<tool_call>\n{ONE}\n</tool_call>"
CASES: list[tuple[str, AnswerFormat, list[Part]]] = [
    ("plain text < with a bracket", form(), [Content("plain text < with a bracket")]),
    (HERMES_TEXT, form(), call(0, "f", '{"x": 1}')),
    (f"Let me see.\n\n{HERMES_TEXT}\n", form(), [Content("Let me see."), *call(0, "f", '{"x": 1}')]),
    (f"{HERMES_TEXT}\n{HERMES_TEXT}", form(), [*call(0, "f", '{"x": 1}'), *call(1, "f", '{"x": 1}')]),
    (f"a {HERMES_TEXT} b", form(), [Content("a"), *call(0, "f", '{"x": 1}'), Content(" b")]),
    (f"{HERMES_TEXT} b", form(), [*call(0, "f", '{"x": 1}'), Content("b")]),
    ('<tool_call>{"arguments": {"a": [1, {}]}, "name": "g"}</tool_call>', form(), call(0, "g", '{"a": [1, {}]}')),
    ('<tool_call>{"name": "f"}</tool_call>', form(), call(0, "f", "{}")),
    ('<tool_call>{"name": "f", "arguments": {}}', form(), call(0, "f", "{}")),
    (f'<tool_call>{{"name": "f", "arguments": {TRICKY}}}</tool_call>', form(), call(0, "f", TRICKY)),
    # Not calls: content, every character of it.
    (UNKNOWN, form(), [Content(UNKNOWN)]),
    ('<tool_call>{"name": "f", "arguments": [1]}', form(), [Content('<tool_call>{"name": "f", "arguments": [1]}')]),
    ('<tool_call>{"name": "f", "arguments": 1}', form(), [Content('<tool_call>{"name": "f", "arguments": 1}')]),
    ('<tool_call>{"name": "f", "arguments": "{}"}', form(), [Content('<tool_call>{"name": "f", "arguments": "{}"}')]),
    ("<tool_call>nothing</tool_call>", form(), [Content("<tool_call>nothing</tool_call>")]),
    (f"<tool_call>{HERMES_TEXT}", form(), [Content("<tool_call>"), *call(0, "f", '{"x": 1}')]),
    ('<tool_call>{"name": "f", "argum', form(), [Content('<tool_call>{"name": "f", "argum')]),
    ("a <tool_c", form(), [Content("a <tool_c")]),
    # Begun, and then not JSON: what is no argument is content.
    ('<tool_call>{"name": "f", "arguments": {"x": oops}}', form(), [*call(0, "f", '{"x": '), Content("oops}}")]),
    # Reasoning.
    ("<think>\nhm\n</think>\n\nHello", form(thinking=THINK), [Reasoning("hm"), Content("Hello")]),
    (" \n<think></think>Hello \n", form(thinking=THINK), [Content("Hello \n")]),
    ("<think>never ends", form(thinking=THINK), [Reasoning("never ends")]),
    ("<thin", form(thinking=THINK), [Content("<thin")]),
    ("Hi <think>no</think>", form(thinking=THINK), [Content("Hi <think>no</think>")]),
    ("<think>no</think>", form(), [Content("<think>no</think>")]),
    (f"<think>f?</think>\n\n{HERMES_TEXT}", form(thinking=THINK), [Reasoning("f?"), *call(0, "f", '{"x": 1}')]),
    # Llama: an answer that begins with a call's object.
    ('{"name": "f", "parameters": {"x": "a"}}', form(STYLE["llama"]), call(0, "f", '{"x": "a"}')),
    ('<|python_tag|>{"name": "f", "parameters": {}}', form(STYLE["llama"]), call(0, "f", "{}")),
    (TWO_OBJECTS, form(STYLE["llama"]), [*call(0, "f", "{}"), *call(1, "g", "{}")]),
    ('{"name": "Bob", "parameters": {}}', form(STYLE["llama"]), [Content('{"name": "Bob", "parameters": {}}')]),
    ('So: {"name": "f", "parameters": {}}', form(STYLE["llama"]), [Content('So: {"name": "f", "parameters": {}}')]),
    (' {"city": "Paris"}', form(STYLE["llama"]), [Content(' {"city": "Paris"}')]),
    # Mistral, old and new.
    (f"[TOOL_CALLS] [{ONE}, {ONE}]", form(STYLE["mistral"]), [*call(0, "f", '{"x": 1}'), *call(1, "f", '{"x": 1}')]),
    (f'[TOOL_CALLS][{ONE[:-1]}, "id": "abcdefghi"}}]', form(STYLE["mistral"]), call(0, "f", '{"x": 1}')),
    (NEWER, form(STYLE["mistral_named"]), [*call(0, "f", "{}"), *call(1, "g", '{"y":2}')]),
    ('Hm.[TOOL_CALLS]f{"x":1}', form(STYLE["mistral_named"]), [Content("Hm."), *call(0, "f", '{"x":1}')]),
    ("[TOOL_CALLS]h[ARGS]{}", form(STYLE["mistral_named"]), [Content("[TOOL_CALLS]h[ARGS]{}")]),
    ("[TOOL_CALLS] what?", form(STYLE["mistral_named"]), [Content("[TOOL_CALLS] what?")]),
]  # fmt: skip


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize(("text", "format", "parts"), CASES, ids=lambda value: str(value)[:50])
def test_parts(text: str, format: AnswerFormat, parts: list[Part], size: int) -> None:
    assert parse([text[i : i + size] for i in range(0, len(text), size)], format)[0] == parts


def test_arguments_come_as_they_are_written() -> None:
    parser = AnswerParser(form(), NAMES, lambda: "id")
    assert parser.push('<tool_call>\n{"name": "f"') == []
    assert parser.push(', "arguments": {"x"') == [CallStart(0, "id", "f"), Arguments(0, '{"x"')]
    assert parser.push(': "long') == [Arguments(0, ': "long')]
    assert not parser.called
    assert parser.push('"}}') == [Arguments(0, '"}')]
    assert parser.called


def test_an_answer_that_begins_inside_the_reasoning() -> None:
    parts, _ = parse(["hm</thi", "nk>\n\nHi"], form(thinking=THINK), inside=True)
    assert parts == [Reasoning("hm"), Content("Hi")]


def test_without_tools_calls_are_content() -> None:
    assert parse([HERMES_TEXT], form(), names=())[0] == [Content(HERMES_TEXT)]


@pytest.mark.parametrize(
    ("text", "called"),
    [
        ("hello", False),
        (HERMES_TEXT, True),
        (HERMES_TEXT + HERMES_TEXT, True),
        (HERMES_TEXT[:-20], False),  # cut off inside the arguments
        (HERMES_TEXT + HERMES_TEXT[:-20], False),
        (HERMES_TEXT + " and so on", True),
    ],
)
def test_called_only_if_every_call_is_whole(text: str, called: bool) -> None:
    assert parse([text], form())[1].called is called


def test_a_single_call_closes_the_answer() -> None:
    parts, parser = parse(["a ", HERMES_TEXT[:-14], HERMES_TEXT[-14:], HERMES_TEXT], form(), single=True)
    assert parts == [Content("a"), *call(0, "f", '{"x": 1}')]
    assert parser.closed and parser.called


# Texts made of what the formats are made of, so that marks are often half there.
BITS = [
    "<tool_call>", "</tool_call>", "<tool", "_call>", "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "<|python_tag|>",
    "<think>", "</think>", "</", "<", '{"name": "f", ', '"arguments": ', '"parameters": ', '{"x": 1}', "{}", "}", "{",
    '"', "[", "]", ", ", ";", "f", "g", "\n", " ", "text", ONE, HERMES_TEXT,
]  # fmt: skip
TEXTS = st.lists(st.sampled_from(BITS), max_size=14).map("".join)
FORMATS = st.builds(form, st.sampled_from(STYLES), st.sampled_from([None, THINK]))


@given(TEXTS, FORMATS, st.booleans(), st.data())
def test_parts_do_not_depend_on_the_pieces(text: str, format: AnswerFormat, inside: bool, data: st.DataObject) -> None:
    inside = inside and format.thinking is not None
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    whole, one = parse([text], format, inside=inside)
    split, other = parse(pieces, format, inside=inside)
    assert split == whole
    assert (one.called, one.in_reasoning) == (other.called, other.in_reasoning)


@given(TEXTS, FORMATS)
def test_no_text_is_lost_and_calls_are_json(text: str, format: AnswerFormat) -> None:
    parts, parser = parse([text], format)
    calls = [part for part in parts if isinstance(part, CallStart)]
    assert [made.index for made in calls] == list(range(len(calls)))
    assert {made.name for made in calls} <= set(NAMES)
    for made in calls:
        arguments = "".join(p.text for p in parts if isinstance(p, Arguments) and p.index == made.index)
        assert arguments in text
        if parser.called:
            assert isinstance(json.loads(arguments), dict)
    shown = "".join(part.text for part in parts if not isinstance(part, CallStart))
    if not calls:
        plain = text
        if format.thinking is not None and text.lstrip().startswith("<think>"):
            plain = "".join(text.replace("<think>", "", 1).replace("</think>", "", 1).split())
            shown = "".join(shown.split())
        assert shown == plain
    left = iter(text)
    assert all(char in left for char in shown)  # in its order, and nothing invented
