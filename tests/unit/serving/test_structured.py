"""From a request's fields to a grammar's source, and on to what it accepts."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.config import LimitSettings
from headway.core.errors import InvalidRequest
from headway.model.grammar import GrammarError, Grammars
from headway.model.tokenizer import load_tokenizer
from headway.serving.structured import FIELDS, grammar_source, structured_form

LIMITS = LimitSettings()


@pytest.fixture(scope="module")
def accepts(parity_fixtures: Path) -> Callable[[str, str], bool]:
    """Whether a source takes the whole of a text and nothing is missing."""
    tokenizer = load_tokenizer(parity_fixtures / "hf" / "qwen2")
    grammars = Grammars(tokenizer, tokenizer.vocab_size, tokenizer.end_ids)
    exact = tokenizer.exact()

    def check(source: str, text: str) -> bool:
        ids = exact.encode(text, add_special_tokens=False).ids
        matcher = grammars.matcher(source)
        return matcher.try_consume_tokens(ids) == len(ids) and matcher.is_accepting()

    return check


def test_json_object_is_an_object(accepts: Callable[[str, str], bool]) -> None:
    source = grammar_source("json_object", None, LIMITS, "it")
    assert accepts(source, '{"a": [1, {"b": null}]}') and accepts(source, "{}")
    for text in ("[]", "1", '"a"', "", " {}", "{}x"):
        assert not accepts(source, text), text


def test_white_space_ends(accepts: Callable[[str, str], bool]) -> None:
    source = grammar_source("json_schema", {"type": "array", "items": {"type": "integer"}}, LIMITS, "it")
    for text in ("[1,2]", "[1, 2]", "[\n    1,\n    2\n]", "[ 1 , 2 ]", "[\n\n" + 20 * " " + "1]", "[\n\t1]"):
        assert accepts(source, text), text
    for text in ("[  1]", "[\n\n\n1]", "[\n" + 21 * " " + "1]", "[\n \n1]", "[1]\n"):
        assert not accepts(source, text), text


def test_a_lark_grammar_embeds_schemas_with_the_same_rules(accepts: Callable[[str, str], bool]) -> None:
    lark = 'start: "<call>" args "</call>" | "%json {" // %json {"not": 1}\nargs: %json {"type": "object"}\n'
    source = grammar_source("lark", lark, LIMITS, "it")
    assert accepts(source, '<call>{"a": 1}</call>') and accepts(source, "%json {")
    assert not accepts(source, '<call>{   "a": 1}</call>')
    with pytest.raises(InvalidRequest, match="'not'"):
        grammar_source("lark", 'start: %json {"not": {}}', LIMITS, "it")
    with pytest.raises(InvalidRequest, match="%json"):
        grammar_source("lark", "start: %json {", LIMITS, "it")


@given(st.lists(st.text(min_size=1, max_size=8), min_size=1, max_size=5))
def test_a_choice_is_one_of_the_texts(accepts: Callable[[str, str], bool], texts: list[str]) -> None:
    source = grammar_source("choice", texts, LIMITS, "it")
    assert all(accepts(source, text) for text in texts)
    assert not accepts(source, texts[0] + "\0x") and not accepts(source, "")


@pytest.mark.parametrize("texts", [["yes", "no"] * 3000, [f"w{i}" for i in range(4000)]])
def test_thousands_of_choices(accepts: Callable[[str, str], bool], texts: list[str]) -> None:
    source = grammar_source("choice", texts, LIMITS, "it")
    assert accepts(source, texts[0]) and accepts(source, texts[-1]) and not accepts(source, "maybe")


@pytest.mark.parametrize(
    ("regex", "good", "bad"),
    [
        (r"\d{3}-\d{4}", "555-1234", "555-123"),
        (r"a/b", "a/b", r"a\/b"),
        (r"a\/b", "a/b", "ab"),
        ("a\nb", "a\nb", "ab"),
        (r"[/\\]+", "/\\", "x"),
        (r"(?i)yes|no", "YES", "maybe"),
        ('"[a-z]+"', '"x"', "x"),
    ],
)
def test_a_regex_is_matched_whole(accepts: Callable[[str, str], bool], regex: str, good: str, bad: str) -> None:
    source = grammar_source("regex", regex, LIMITS, "it")
    assert accepts(source, good) and not accepts(source, bad) and not accepts(source, good + "\0")


@pytest.mark.parametrize(
    ("schema", "what"),
    [
        ({"not": {"type": "string"}}, "'not'"),
        ({"properties": {"a": {"items": {"uniqueItems": True}}}}, "/properties/a/items"),
        ({"$defs": {"x": {"if": {}}}}, "'if'"),
        ({"nullable": True, "type": "string"}, "'nullable'"),
        ({"x-guidance": {"lenient": True}}, "x-guidance"),
        ({"anyOf": {"a": 1}}, "list of schemas"),
        ({"properties": [1]}, "object of schemas"),
        ({"items": 3}, "must be an object"),
        ({"anyOf": [{}, 1]}, "/anyOf/1"),
        ([], "must be an object"),
        ("[", "not JSON"),
        (None, "must be an object"),
        ({"const": float("inf")}, "not finite"),
        ({"multipleOf": 999_983}, "'multipleOf'"),
        ({"multipleOf": 10**6000}, "'multipleOf'"),
        ({"allOf": [{"multipleOf": 0.97}, {"multipleOf": 89}]}, "'multipleOf'"),
        ({"const": "\ud800"}, "Unicode"),
        ({"enum": [str(i) for i in range(40_000)]}, "bytes"),
        ({"description": "x" * 70_000}, "bytes"),
    ],
)
def test_schemas_that_could_not_be_kept_are_refused_by_name(schema: Any, what: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        grammar_source("json_schema", schema, LIMITS, "response_format.json_schema.schema")
    assert what in caught.value.message
    assert caught.value.param == "response_format.json_schema.schema"


def test_names_that_look_like_keywords_are_names(accepts: Callable[[str, str], bool]) -> None:
    schema = {
        "properties": {"not": {"const": {"if": 1}}, "$ref": True},
        "required": ["not"],
        "x-order": 1,
        "type": "object",
    }
    assert accepts(grammar_source("json_schema", schema, LIMITS, "it"), '{"not": {"if": 1}}')
    assert accepts(grammar_source("json_schema", json.dumps(schema), LIMITS, "it"), '{"not": {"if": 1}, "$ref": 2}')


@pytest.mark.parametrize("levels", [200, 100_000])
def test_depth_is_bounded(levels: int) -> None:
    schema: Any = {}
    for _ in range(levels):
        schema = {"items": schema}
    with pytest.raises(InvalidRequest, match=r"deeper than|bytes"):
        grammar_source("json_schema", schema, LIMITS, "it")
    with pytest.raises(InvalidRequest):
        grammar_source("json_schema", '{"items":' * levels + "{}" + "}" * levels, LIMITS, "it")
    data: Any = 1
    for _ in range(levels):
        data = [data]
    with pytest.raises(InvalidRequest):
        grammar_source("json_schema", {"const": data}, LIMITS, "it")


def test_exactly_one_form() -> None:
    assert structured_form({"regex": "a", "json": None, "json_object": False}, LIMITS, "it")
    assert structured_form({"json_object": True}, LIMITS, "it").source == grammar_source(
        "json_object", None, LIMITS, "it"
    )
    for given_ in ({}, {"regex": "a", "choice": ["a"]}, {"json_object": False}, {"other": 1}):
        with pytest.raises(InvalidRequest, match="exactly one"):
            structured_form(given_, LIMITS, "it")
    for name, value in (
        ("regex", ""),
        ("choice", []),
        ("choice", [""]),
        ("choice", [1]),
        ("grammar", " "),
        ("json", 1),
    ):
        with pytest.raises(InvalidRequest) as caught:
            structured_form({name: value}, LIMITS, "it")
        assert caught.value.param == f"it.{name}"
    assert FIELDS.keys() == {"json", "json_object", "regex", "choice", "grammar"}


def test_odd_values_are_left_to_the_compiler(accepts: Callable[[str, str], bool]) -> None:
    for schema in ({"format": ["date"]}, {"format": "hostname", "maxLength": "x"}, {"multipleOf": True}, {"type": 3}):
        with pytest.raises(GrammarError):
            accepts(grammar_source("json_schema", schema, LIMITS, "it"), "1")


@pytest.mark.parametrize(
    ("form", "good", "bad"),
    [
        ("date", ["2024-02-29", "2000-02-29", "2023-12-31"], ["2023-02-29", "1900-02-29", "2023-04-31"]),
        ("date-time", ["2024-02-29T23:59:59Z", "2023-01-01t00:00:00.5+01:00"], ["2023-02-29T00:00:00Z"]),
        ("time", ["23:59:59Z"], ["22:59:60Z"]),
        ("hostname", ["a.example.com", "a-b"], ["xn--X.com", "a..b", "-a", "a" * 64, "a." * 127 + "bc"]),
        ("email", ["joe@example.com"], ["joe"]),
        ("uuid", ["2eb8aa08-aa98-11ea-b4aa-73b441d16380"], ["2eb8aa08"]),
    ],
)
def test_formats_are_kept(accepts: Callable[[str, str], bool], form: str, good: list[str], bad: list[str]) -> None:
    source = grammar_source("json_schema", {"type": "string", "format": form, "maxLength": 300}, LIMITS, "it")
    assert all(accepts(source, json.dumps(text)) for text in good)
    assert not any(accepts(source, json.dumps(text)) for text in bad)
