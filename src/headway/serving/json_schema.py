"""Which JSON schemas output can be held to: the rest is refused by name, for a keyword ignored is a promise broken."""

import copy
import math
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from headway.core.config import LimitSettings
from headway.core.errors import InvalidRequest
from headway.serving.json_formats import has_format, keep_format

# Keywords by what their value is. All others of JSON Schema (`not`, `if`, `contains`, `uniqueItems`, ...) are refused.
_SCHEMA = frozenset({"additionalProperties", "items"})
_SCHEMAS = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
_NAMED_SCHEMAS = frozenset({"properties", "patternProperties", "$defs", "definitions"})
_CONSTRAINTS = frozenset(
    [
        "type",
        "const",
        "enum",
        "required",
        "minItems",
        "maxItems",
        "minProperties",
        "maxProperties",
        "minLength",
        "maxLength",
        "pattern",
        "format",
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "exclusiveMaximum",
        "multipleOf",
        "$ref",
    ]
)
# What says nothing about which output is right. `discriminator` is OpenAPI's, and names what anyOf or oneOf tells.
_NOTES = frozenset(
    [
        "$schema",
        "$id",
        "$comment",
        "title",
        "description",
        "default",
        "examples",
        "deprecated",
        "readOnly",
        "writeOnly",
        "contentMediaType",
        "contentEncoding",
        "contentSchema",
        "$anchor",
        "discriminator",
    ]
)


# A multiple is recognised by its remainder, a state to each; those of a schema can come together.
MOST_REMAINDERS = 5000


def narrowed(schema: Any) -> Any:
    """The schema with its formats as patterns."""
    if not any(has_format(part) for _, part in _parts(schema, "")):
        return schema
    schema = copy.deepcopy(schema)  # as deep as was checked
    for _, part in list(_parts(schema, "")):
        if has_format(part):
            keep_format(part)
    return schema


def check_schema(schema: Any, limits: LimitSettings, param: str) -> None:
    """Raises InvalidRequest for a schema that is too big or too deep, or has a keyword that could not be kept."""
    _check_size(schema, limits, param)
    remainders = 1
    for place, part in _parts(schema, ""):
        if isinstance(part, bool):
            continue
        if not isinstance(part, dict):
            raise _refusal(param, place, "a schema must be an object, true or false")
        for keyword in part:
            _check_keyword(part, keyword, place, param)
        remainders = math.lcm(remainders, _coefficient(part.get("multipleOf")))
        if remainders > MOST_REMAINDERS:
            raise _refusal(param, place, "'multipleOf' has too many digits, alone or with others of the schema")


def _coefficient(multiple: Any) -> int:
    """A number's digits without the zeros around them."""
    if isinstance(multiple, bool) or not isinstance(multiple, int | float):
        return 1
    if isinstance(multiple, int) and abs(multiple) > 10**15:
        return MOST_REMAINDERS + 1
    return int("".join(map(str, Decimal(repr(multiple)).normalize().as_tuple().digits))) or 1


def _check_keyword(schema: dict[str, Any], keyword: str, place: str, param: str) -> None:
    if keyword in _NOTES or keyword in _CONSTRAINTS or keyword in _SCHEMA:
        wrong = None
    elif keyword in _SCHEMAS:
        wrong = None if isinstance(schema[keyword], list) else "must be a list of schemas"
    elif keyword in _NAMED_SCHEMAS:
        wrong = None if isinstance(schema[keyword], dict) else "must be an object of schemas"
    elif keyword.startswith("x-") and keyword != "x-guidance":  # by custom a note of some tool
        wrong = None
    else:
        wrong = "is not supported in a schema that output is to follow"
    if wrong is not None:
        raise _refusal(param, place, f"{keyword[:60]!r} {wrong}")


def _parts(schema: Any, place: str) -> Iterator[tuple[str, Any]]:
    """Every schema in `schema`, itself first, with its place as a JSON pointer."""
    todo = [(place, schema)]
    while todo:
        place, part = todo.pop()
        yield place, part
        if not isinstance(part, dict):
            continue
        for keyword, value in part.items():
            here = f"{place}/{keyword}"
            if keyword in _NAMED_SCHEMAS:
                todo += [(f"{here}/{name}", inner) for name, inner in value.items()]
            elif keyword in _SCHEMAS or (keyword == "items" and isinstance(value, list)):
                todo += [(f"{here}/{index}", inner) for index, inner in enumerate(value)]
            elif keyword in _SCHEMA:
                todo.append((here, value))


def _check_size(value: Any, limits: LimitSettings, param: str) -> None:
    """Bounds the work of everything that follows, without recursion. Counts at most what serialising would give."""
    left, todo = limits.max_grammar_bytes, [(value, 1)]
    while todo:
        part, depth = todo.pop()
        left -= 2 + (len(part) if isinstance(part, str) else 0)
        if left < 0:
            raise InvalidRequest(f"{param}: more than {limits.max_grammar_bytes} bytes of grammar", param=param)
        if isinstance(part, float) and not math.isfinite(part):
            raise InvalidRequest(f"{param}: a number in it is not finite", param=param)
        if not isinstance(part, dict | list):
            continue
        if depth > limits.max_schema_depth:
            raise InvalidRequest(f"{param}: nested deeper than {limits.max_schema_depth} levels", param=param)
        if isinstance(part, dict):
            todo += [(name, depth) for name in part]
            part = list(part.values())
        todo += [(inner, depth + 1) for inner in part]


def _refusal(param: str, place: str, problem: str) -> InvalidRequest:
    return InvalidRequest(f"{param}: {problem} (at {place[:200] or 'the top'})", param=param, code="unsupported_schema")
