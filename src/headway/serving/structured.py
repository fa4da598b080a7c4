"""From what a client asks of the output's form to the source that `Sampling.grammar` carries.

A source is llguidance's grammar as JSON text, `{"grammars": [...]}`. Here it is only written, after every cap has been
checked; `model/grammar` says whether it compiles.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, Literal

from llguidance import regex_to_lark

from headway.core.config import LimitSettings
from headway.core.errors import InvalidRequest
from headway.serving.json_schema import check_schema, narrowed
from headway.serving.request import Form

Kind = Literal["json_object", "json_schema", "regex", "choice", "lark"]

# Wherever JSON may have white space: a space, or one or two line breaks with some indentation. Without a bound a model
# that has nothing more to say goes on with white space for ever; without any, one that writes `": "` is made to write
# what it would not. llama.cpp's grammars have the same rule.
WHITESPACE = r" |\n{1,2}[ \t]{0,20}"
_JSON_OPTIONS = {"whitespace_pattern": WHITESPACE, "coerce_one_of": False, "lenient": False}

# What may hold the letters %json without meaning them, and what means them.
_LARK_PARTS = re.compile(r'"(?:\\.|[^"\\\n])*"|/(?!/)(?:\\.|[^/\\\n])+/|//[^\n]*|(?P<json>%json\b\s*)')
# Fields of the wire's `structured_outputs`, of which exactly one is given.
FIELDS: Mapping[str, Kind] = {
    "json": "json_schema",
    "json_object": "json_object",
    "regex": "regex",
    "choice": "choice",
    "grammar": "lark",
}


def grammar_source(kind: Kind, value: Any, limits: LimitSettings, param: str) -> str:
    """The source for `value`: a JSON schema (or its text), a regular expression, a list of texts, or a Lark grammar, in
    which `%json {...}` embeds schemas. `json_object` takes no value.

    Raises InvalidRequest naming `param`.
    """
    if kind == "json_object":
        return _source({"json_schema": _with_options({"type": "object"})}, limits, param)
    if kind == "json_schema":
        schema = _parsed(value, limits, param) if isinstance(value, str) else value
        check_schema(schema, limits, param)
        return _source({"json_schema": _with_options(schema)}, limits, param)
    if kind == "choice":
        if not isinstance(value, list) or not value or not all(isinstance(text, str) and text for text in value):
            raise InvalidRequest(f"{param}: must be a list of texts, none of them empty", param=param)
        options = " | ".join(json.dumps(text).replace("\x7f", r"\u007f") for text in value)
        # One terminal: an automaton knows thousands of them, where a parser would follow each by itself.
        return _source({"lark_grammar": f"start: CHOICE\nCHOICE: {options}"}, limits, param)
    if not isinstance(value, str) or not value.strip():
        raise InvalidRequest(f"{param}: must be a text, not empty", param=param)
    if len(value) > limits.max_grammar_bytes:
        raise InvalidRequest(f"{param}: more than {limits.max_grammar_bytes} bytes of grammar", param=param)
    if kind == "regex":
        # \d and \w as in JSON schema and in most people's minds: of ASCII
        return _source({"lark_grammar": f"start: /{regex_to_lark(value, 'dw')}/"}, limits, param)
    return _source({"lark_grammar": _lark(value, limits, param)}, limits, param)


def structured_form(given: Mapping[str, Any], limits: LimitSettings, param: str) -> Form:
    """What the wire's `structured_outputs`, an object of FIELDS, asks for. Raises InvalidRequest."""
    named = {name: value for name, value in given.items() if value is not None}
    if named.get("json_object") is False:
        del named["json_object"]
    if len(named) != 1 or not FIELDS.keys() >= named.keys():
        raise InvalidRequest(f"{param}: give exactly one of {', '.join(FIELDS)}", param=param)
    [(name, value)] = named.items()
    return Form(grammar_source(FIELDS[name], value, limits, f"{param}.{name}"), f"{param}.{name}")


def _source(grammar: dict[str, Any], limits: LimitSettings, param: str) -> str:
    try:
        source = json.dumps({"grammars": [grammar]}, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        size = len(source.encode())
    except ValueError as error:  # a surrogate without its pair
        raise InvalidRequest(f"{param}: not Unicode text", param=param) from error
    if size > limits.max_grammar_bytes:
        raise InvalidRequest(
            f"{param}: {size} bytes of grammar; at most {limits.max_grammar_bytes} are taken", param=param
        )
    return source


def _with_options(schema: Any) -> Any:
    return {**(narrowed(schema) if isinstance(schema, dict) else _of_bool(schema)), "x-guidance": _JSON_OPTIONS}


def _of_bool(schema: bool) -> dict[str, Any]:
    return {} if schema else {"enum": []}


def _parsed(text: str, limits: LimitSettings, param: str) -> Any:
    if len(text) > limits.max_grammar_bytes:
        raise InvalidRequest(f"{param}: more than {limits.max_grammar_bytes} bytes of grammar", param=param)
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"{param}: not JSON", param=param) from error


def _lark(grammar: str, limits: LimitSettings, param: str) -> str:
    """The grammar with each embedded schema checked and its options set."""
    pieces, done = [], 0
    for found in _LARK_PARTS.finditer(grammar):
        if found["json"] is None or found.start() < done:
            continue
        try:
            schema, end = json.JSONDecoder().raw_decode(grammar, found.end())
        except (ValueError, RecursionError) as error:
            raise InvalidRequest(f"{param}: what follows %json is not JSON", param=param) from error
        check_schema(schema, limits, param)
        pieces += [grammar[done : found.end()], json.dumps(_with_options(schema), ensure_ascii=False)]
        done = end
    return "".join([*pieces, grammar[done:]])
