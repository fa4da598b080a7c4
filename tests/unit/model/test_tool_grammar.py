"""What the grammars of answers with calls accept, by llguidance's own matcher over real tokenizers."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import llguidance
import pytest

from headway.model.answer_format import STYLES, AnswerFormat
from headway.model.tokenizer import Tokenizer, load_tokenizer
from headway.model.tool_grammar import CallGrammar, arguments_schema

STYLE = {style.name: style for style in STYLES}
CLOSED = {"type": "object", "properties": {}, "additionalProperties": False}
WEATHER = {
    "name": "get_weather",
    "parameters": {
        "type": "object",
        "properties": {"city": {"$ref": "#/$defs/city"}, "days": {"type": "integer"}},
        "required": ["city"],
        "additionalProperties": False,
        "$defs": {"city": {"type": "string"}},
    },
}
FUNCTIONS: list[dict[str, Any]] = [WEATHER, {"name": "get_time", "parameters": CLOSED}]
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'
TIME = '<tool_call>\n{"name": "get_time", "arguments": {}}\n</tool_call>'
WRONG = CALL.replace("city", "town")
LLAMA = '{"name": "get_weather", "parameters": {"city": "Paris"}}'
ITEM = '{"name": "get_weather", "arguments": {"city": "Paris"}}'
THINK = ("<think>", "</think>")


@cache
def real_tokenizer(path: Path) -> tuple[Tokenizer, Any]:
    tokenizer = load_tokenizer(path)
    vocabulary = llguidance.TokenizerWrapper(Vocabulary(tokenizer))
    return tokenizer, llguidance.LLTokenizer(vocabulary, eos_token=list(tokenizer.end_ids))


class Vocabulary:
    def __init__(self, tokenizer: Tokenizer) -> None:
        self.eos_token_id = tokenizer.end_ids[0]
        self.bos_token_id = tokenizer.bos_id
        self.tokens = [tokenizer.token_bytes(i) or f"<{i}>".encode() for i in range(tokenizer.vocab_size)]
        self.special_token_ids = [i for i in range(tokenizer.vocab_size) if not tokenizer.token_bytes(i)]
        self._encode = tokenizer.encode

    def __call__(self, text: str | bytes) -> list[int]:
        return list(self._encode(text if isinstance(text, str) else text.decode(), add_special=False))


def accepts(path: Path, grammar: str, text: str, special: dict[str, int] | None = None) -> bool:
    """Whether the grammar takes `text`, token by token, and may end there; names in `special` are those tokens."""
    tokenizer, compiled = real_tokenizer(path)
    matcher = llguidance.LLMatcher(compiled, grammar, log_level=0)
    assert not matcher.is_error(), matcher.get_error()
    ids = tokens_of(tokenizer, text, special or {})
    taken = matcher.try_consume_tokens(ids)
    assert not matcher.is_error(), matcher.get_error()
    return taken == len(ids) and matcher.is_accepting()


def tokens_of(tokenizer: Tokenizer, text: str, special: dict[str, int]) -> list[int]:
    for mark, index in special.items():
        before, found, after = text.partition(mark)
        if found:
            return [*tokens_of(tokenizer, before, special), index, *tokens_of(tokenizer, after, special)]
    return list(tokenizer.encode(text, add_special=False))


def grammar(name: str, functions: Sequence[Any] = FUNCTIONS, *, parallel: bool = True, **more: Any) -> CallGrammar:
    format = AnswerFormat(STYLE[name], True, more.get("thinking"), more.get("special", {}))
    return CallGrammar(format, functions, more.get("strict", ("get_weather", "get_time")), parallel)


def free(made: CallGrammar, *, in_reasoning: bool = False, may_reason: bool = False) -> str:
    return made.free(in_reasoning=in_reasoning, may_reason=may_reason)


def required(made: CallGrammar, *, in_reasoning: bool = False, may_reason: bool = False) -> str:
    return made.required(in_reasoning=in_reasoning, may_reason=may_reason)


@pytest.mark.parametrize(
    ("text", "good"),
    [
        (CALL, True),
        (TIME, True),
        (f"{CALL}\n{TIME}", True),
        ("\n".join([TIME] * 16), True),
        ("\n".join([TIME] * 17), False),
        (WRONG, False),
        (CALL.replace("get_weather", "get_news"), False),
        (CALL.replace('"Paris"', "1"), False),
        (f"Well. {CALL}", False),
        (CALL[:-3], False),
        ("", False),
    ],
)
def test_required_hermes(default_model: Path, text: str, good: bool) -> None:
    assert accepts(default_model, required(grammar("hermes")), text) == good


def test_one_call(default_model: Path) -> None:
    made = required(grammar("hermes", [WEATHER], parallel=False))
    assert accepts(default_model, made, CALL)
    assert not accepts(default_model, made, f"{CALL}\n{CALL}")
    assert not accepts(default_model, made, TIME)


@pytest.mark.parametrize(
    ("text", "good"),
    [
        ("Just text, with < and <tool and {}.", True),
        ("", True),
        (f"Let me look.\n{CALL}\nDone.", True),
        (f"{CALL}\n{TIME}", True),
        (WRONG, False),
        (f"Hm. {WRONG}", False),
        ("<tool_call>nothing", False),
    ],
)
def test_free_text_until_a_call_begins(default_model: Path, text: str, good: bool) -> None:
    made = free(grammar("hermes"))
    assert accepts(default_model, made, text) == good


def test_what_is_not_strict_may_have_any_arguments_in_free_text(default_model: Path) -> None:
    made = grammar("hermes", strict=("get_time",))
    assert accepts(default_model, free(made), WRONG)
    assert not accepts(default_model, free(made), TIME.replace("{}", '{"x": 1}'))
    assert not accepts(default_model, required(made), WRONG)


def test_llama(default_model: Path) -> None:
    made = required(grammar("llama"))
    assert accepts(default_model, made, LLAMA)
    assert not accepts(default_model, made, LLAMA + LLAMA)
    assert not accepts(default_model, made, LLAMA.replace("city", "town"))
    text_or_call = free(grammar("llama"))
    for text, good in [
        (LLAMA, True),
        ("Well. {}", True),
        ("", True),
        (LLAMA.replace("city", "town"), False),
        (" {}", False),
    ]:
        assert accepts(default_model, text_or_call, text) == good


# Any ids that the tokenizer has as special tokens: what counts is that the mark is no text.
MISTRAL = {"[TOOL_CALLS]": 4, "[ARGS]": 5}


def test_mistral(default_model: Path) -> None:
    made = grammar("mistral", special=MISTRAL)
    for text, good in [(f"[TOOL_CALLS][{ITEM}]", True), (f"[TOOL_CALLS][{ITEM}, {ITEM}]", True), (f"[{ITEM}]", False)]:
        assert accepts(default_model, required(made), text, MISTRAL) == good
    assert accepts(default_model, free(made), f"Hm.[TOOL_CALLS][{ITEM}]", MISTRAL)
    assert not accepts(default_model, free(made), "Hm.[TOOL_CALLS] no", MISTRAL)


def test_mistral_named(default_model: Path) -> None:
    made = grammar("mistral_named", special=MISTRAL)
    one, two = '[TOOL_CALLS]get_weather[ARGS]{"city": "Paris"}', "[TOOL_CALLS]get_time[ARGS]{}"
    assert accepts(default_model, required(made), one + two, MISTRAL)
    assert not accepts(default_model, required(made), one.replace("city", "town"), MISTRAL)
    assert not accepts(
        default_model, required(grammar("mistral_named", special=MISTRAL, parallel=False)), one + two, MISTRAL
    )


def test_something_else_than_a_call(default_model: Path) -> None:
    made = grammar("hermes").required(in_reasoning=False, may_reason=False, or_else='"no"')
    assert accepts(default_model, made, CALL) and accepts(default_model, made, "no")
    alone = grammar("hermes", [], thinking=THINK).required(in_reasoning=False, may_reason=True, or_else='"no"')
    assert accepts(default_model, alone, "no") and accepts(default_model, alone, "<think>Hm.</think>\n\nno")
    assert not accepts(default_model, alone, CALL)


@pytest.mark.parametrize("special", [{}, {"<think>": 6, "</think>": 7}])
def test_reasoning_may_come_before_the_calls(default_model: Path, special: dict[str, int]) -> None:
    made = grammar("hermes", thinking=THINK, special=special)
    thought = f"<think>\nWhich < tool?\n</think>\n\n{CALL}"
    may = required(made, may_reason=True)
    assert accepts(default_model, may, thought, special) and accepts(default_model, may, CALL, special)
    assert not accepts(default_model, may, f"Hm.</think>{CALL}", special)
    opened = required(made, in_reasoning=True, may_reason=True)
    assert accepts(default_model, opened, thought.removeprefix("<think>"), special)
    assert not accepts(default_model, opened, CALL, special)
    loose = free(made, may_reason=True)
    for text in (thought, f"<think>Hm.</think>\n\nHi. {CALL}", "Hi.", CALL):
        assert accepts(default_model, loose, text, special)
    assert not accepts(default_model, loose, f"<think>Hm.</think>{WRONG}", special)
    loose = free(made, in_reasoning=True, may_reason=True)
    assert accepts(default_model, loose, f"Hm.</think>Hi. {CALL}", special)
    assert not accepts(default_model, loose, f"Hm.</think>{WRONG}", special)
    closed = required(made)
    assert accepts(default_model, closed, CALL, special) and not accepts(default_model, closed, thought, special)


@pytest.mark.parametrize(
    ("parameters", "closed"),
    [
        (None, True),
        ({"type": "object", "properties": {}}, True),
        ({"properties": {"a": {}}}, True),
        ({"type": "object"}, False),  # any arguments
        ({"properties": {"a": {}}, "additionalProperties": {"type": "integer"}}, False),
        ({"properties": {"a": {}}, "patternProperties": {"^x": {}}}, False),
        ({"properties": {"a": {}}, "anyOf": [{"required": ["b"]}]}, False),
        ({"properties": {"a": {}}, "$ref": "#/$defs/b", "$defs": {"b": {}}}, False),
    ],
)
def test_a_function_takes_its_own_parameters_alone(parameters: Any, closed: bool) -> None:
    schema = arguments_schema({"name": "f", "parameters": parameters})
    assert (schema.get("additionalProperties") is False) == closed
    assert schema["type"] == "object" and schema.items() >= (parameters or {}).items()
