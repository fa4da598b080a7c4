"""Writes the tables of docs/api.md from the request schemas: `.venv/bin/python docs/api_table.py`."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from headway.delivery.responses_schema import CompactRequest, InputTokensRequest, ResponseCreate, ResponseRequest
from headway.delivery.schema import STATUS
from headway.delivery.schemas import ChatRequest, CompletionRequest, DetokenizeRequest, TokenizeRequest

PAGE = Path(__file__).with_name("api.md")
SECTION = re.compile(r"(<!-- fields of (\w+) -->\n).*?(<!-- end -->)", re.S)
SCHEMAS: dict[str, type[BaseModel]] = {
    kind.__name__: kind
    for kind in (
        *(ChatRequest, CompletionRequest, TokenizeRequest, DetokenizeRequest),
        *(ResponseRequest, InputTokensRequest, CompactRequest, ResponseCreate),
    )
}
BOUNDS = {"minimum": ">=", "maximum": "<=", "exclusiveMinimum": ">", "exclusiveMaximum": "<"}
LENGTHS = {"minLength": "characters >=", "maxLength": "characters <=", "minItems": "items >=", "maxItems": "items <="}


def rows(schema: type[BaseModel]) -> Iterator[tuple[str, str, str]]:
    """(path, type, what becomes of it) of each field, those of objects inside after their own."""
    document = schema.model_json_schema()
    yield from _rows(document, document.get("$defs", {}), "")


def _rows(node: dict[str, Any], known: dict[str, Any], path: str) -> Iterator[tuple[str, str, str]]:
    required = node.get("required", ())
    for name, field in node.get("properties", {}).items():
        here = f"{path}{name}"
        status = field.get(STATUS, "honoured") + (", required" if name in required else "")
        said = field.get("description", "")
        yield here, _type(field, known), f"{status}. {said}" if said else status
        for inner, suffix in _objects(field, known):
            yield from _rows(inner, known, f"{here}{suffix}.")


def _options(field: dict[str, Any], known: dict[str, Any]) -> list[dict[str, Any]]:
    """The alternatives of a field, but for null."""
    alternatives = field.get("anyOf") or field.get("oneOf") or [field]
    found = [known[a["$ref"].rsplit("/", 1)[1]] if "$ref" in a else a for a in alternatives]
    return [a for a in found if a.get("type") != "null"]


def _objects(field: dict[str, Any], known: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str]]:
    for option in _options(field, known):
        if "properties" in option:
            yield option, ""
        elif "items" in option:
            for item, suffix in _objects(option["items"], known):
                yield item, "[]" + suffix


def _type(field: dict[str, Any], known: dict[str, Any]) -> str:
    if STATUS in field and "type" not in field and "anyOf" not in field:
        return "any"
    return " or ".join(dict.fromkeys(_one(option, known) for option in _options(field, known)))


def _one(option: dict[str, Any], known: dict[str, Any]) -> str:
    if "enum" in option:
        return ", ".join(f"`{value}`" for value in option["enum"])
    if "const" in option:
        return f"`{option['const']}`"
    kind = option.get("type", "any")
    if kind == "array":
        kind = f"list of ({_type(option['items'], known)})" if "items" in option else "list"
    bounds = [f"{sign} {option[key]:,}" for key, sign in (BOUNDS | LENGTHS).items() if key in option]
    return " ".join([kind, *bounds])


def table(schema: type[BaseModel]) -> str:
    lines = ["| field | type | what becomes of it |", "|---|---|---|"]
    for path, kind, status in rows(schema):
        cells = [f"`{path}`", kind.replace("|", "\\|"), status.replace("|", "\\|")]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def page(text: str) -> str:
    """The page with its tables made anew."""
    return SECTION.sub(lambda m: m[1] + table(SCHEMAS[m[2]]) + m[3], text)


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
