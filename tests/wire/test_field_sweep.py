"""Every field of every request, at any depth, set to what it cannot be: a 400 that names it; no neighbour notices."""

import json
import math
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from process_rig import Server, serving

Place = tuple[str | int, ...]
HOLE = "a hole that JSON text is put into"
STREAM = {"prompt": "beside", "max_tokens": 300, "temperature": 0, "stream": True}
ADMIN = {"authorization": "Bearer admin"}
BY_TYPE: dict[str, list[str]] = {
    "boolean": ["true"],
    "integer": ["5"],
    "number": ["1.5"],
    "string": ['"zzz"'],
    "array": ["[]", "[[]]"],
    "object": ["{}", '{"zzz":1}'],
}
# Not JSON, or no number that a field could hold, or no text; wherever they stand.
NEVER = {
    "nan": "NaN",
    "infinity": "Infinity",
    "minus infinity": "-Infinity",
    "beyond floats": "1e999",
    "huge number": "9" * 400,
    "lone surrogate": r'"\ud800"',
    "lone surrogate as key": r'{"\udfff":1}',
    "deeper than JSON is read": '{"a":' * 1000 + "1" + "}" * 1000,
    "deep": '{"a":' * 150 + "1" + "}" * 150,
    "deep list": "[" * 150 + "]" * 150,
    "huge string": '"' + "x" * 1_000_000 + '"',
}
FREE = {"schema": {"boolean", "object"}, "json": {"boolean", "object"}}  # what is of no one type, and what it may be
REPEATED = {"parsed", "parsed_arguments"}  # objects that nobody looks into
LONG_TEXTS = {
    ("/tokenize", "prompt"), ("/tokenize", "messages.0.content"), ("/tokenize", "messages.0.content.0.text"),
    ("/v1/responses/input_tokens", "input"), ("/v1/responses/input_tokens", "input.0.content"),
    ("/v1/responses/input_tokens", "instructions"),
    ("/v1/responses/compact", "input"), ("/v1/responses/compact", "input.0.content"),  # the oldest turns are left out
    *((f"/v1/responses{path}", f"input.0.{part}.0.text")  # what the template does not show takes no room
      for path in ("", "/input_tokens", "/compact") for part in ("summary", "content")),
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    method: str
    path: str
    place: Place
    what: str
    body: str

    @property
    def name(self) -> str:
        return ".".join(map(str, self.place))


class Document:
    """The OpenAPI document, which is made of the schemas that read the bodies."""

    def __init__(self, document: dict[str, Any]) -> None:
        self._document = document

    def bodies(self) -> Iterator[tuple[str, str, dict[str, Any]]]:
        for path, methods in self._document["paths"].items():
            for method, described in methods.items():
                if "requestBody" in described:
                    yield method, path, described["requestBody"]["content"]["application/json"]["schema"]

    def queries(self) -> Iterator[tuple[str, str, dict[str, Any]]]:
        for path, methods in self._document["paths"].items():
            for parameter in methods.get("get", {}).get("parameters", []):
                if parameter["in"] == "query":
                    yield path, parameter["name"], parameter["schema"]

    def kinds(self, schema: dict[str, Any]) -> list[dict[str, Any]]:
        """What a schema allows, without references and alternatives."""
        if "$ref" in schema:
            name = schema["$ref"].rpartition("/")[2]
            return self.kinds(self._document["components"]["schemas"][name])
        several = schema.get("anyOf") or schema.get("oneOf")
        return [kind for one in several for kind in self.kinds(one)] if several else [schema]

    def types(self, schema: dict[str, Any]) -> set[str]:
        """Empty: it may be anything that the server cares to take."""
        found = set()
        for kind in self.kinds(schema):
            values = [kind["const"]] if "const" in kind else kind.get("enum", [])
            found |= {kind["type"]} if "type" in kind else {_type_of(value) for value in values}
        return found

    def example(self, schema: dict[str, Any]) -> Any:
        """The least that is valid."""
        kind = next(k for k in self.kinds(schema) if k.get("type") != "null")
        if "const" in kind or "enum" in kind:
            return kind.get("const", kind.get("enum", [None])[0])
        match kind.get("type"):
            case "object":
                named = {name: self.example(kind["properties"][name]) for name in kind.get("required", [])}
                if "model" in named:
                    named["model"] = "tiny"
                return named | ({"content": "f"} if "role" in named else {})
            case "array":
                return [self.example(kind["items"])]
            case "integer" | "number":
                return max(1, kind.get("minimum", 1))
            case "boolean":
                return False
        return "f"

    def places(self, schema: dict[str, Any]) -> Iterator[tuple[Place, dict[str, Any], Any]]:
        """Every place in what `schema` describes, with its own schema, and a whole that has a hole there."""
        for kind in self.kinds(schema):
            if kind.get("type") == "object":
                whole = self.example(kind)
                inner = dict(kind.get("properties", {}))
                if isinstance(kind.get("additionalProperties"), dict):
                    inner["5"] = kind["additionalProperties"]
                for name, part in inner.items():
                    yield from ((p, s, {**whole, name: w}) for p, s, w in self._at(name, part))
            elif kind.get("type") == "array":
                yield from ((p, s, [w]) for p, s, w in self._at(0, kind["items"]))

    def _at(self, key: str | int, schema: dict[str, Any]) -> Iterator[tuple[Place, dict[str, Any], Any]]:
        yield (key,), schema, HOLE
        for place, part, whole in self.places(schema):
            yield (key, *place), part, whole


def _type_of(value: Any) -> str:
    return {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}[type(value)]


def wrong_types(types: set[str]) -> Iterator[tuple[str, str]]:
    """JSON texts of the types that a field does not have; of those that may be anything none asks for nothing."""
    for kind, texts in BY_TYPE.items():
        if kind in types or (kind == "integer" and "number" in types):
            continue
        yield from ((kind, text) for text in texts if types or text not in ("[]", "{}"))


def cases(document: Document) -> Iterator[Case]:
    for method, path, schema in document.bodies():
        seen, places = set(), list(document.places(schema))
        types: dict[Place, set[str]] = {}  # by place: what is wrong in one alternative may be right in another
        for place, part, _ in places:
            types[place] = types.get(place, set()) | document.types(part)
        for place, _, whole in places:
            body = json.dumps({**_least(path), **whole})
            values = [*wrong_types(types[place] or FREE.get(place[-1], set())), *NEVER.items()]
            for what, value in values:
                case = Case(method, path, place, f"{what} {value[:8]}", body.replace(json.dumps(HOLE), value))
                if case not in seen:
                    seen.add(case)
                    yield case


def _least(path: str) -> dict[str, Any]:
    """What keeps a body short, or makes it whole, where no schema says so."""
    if "completions" in path:
        return {"max_tokens": 1}
    return {"input": "f"} | ({"max_output_tokens": 1} if path == "/v1/responses" else {}) if "responses" in path else {}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    config: Path = tmp_path_factory.mktemp("server") / "headway.toml"
    config.write_text("[server]\nadmin_key = 'admin'")
    with serving(step_s=0.002, config=config) as made:
        yield made


@pytest.fixture(scope="module")
def document(server: Server) -> Document:
    return Document(server.http.get("/openapi.json").json())


def problem_of(case: Case, status: int, text: str) -> str | None:
    """What is wrong with an answer to `case`."""
    if case.what.startswith("huge string"):
        if (case.path, case.name) in LONG_TEXTS and status == 200:
            return None
        if case.name == "model" and status == 404:
            return None
    if case.place[-1] in REPEATED and case.what.startswith("deep {") and status == 200:
        return None
    if status != 400:
        return f"{status}: {text[:200]}"
    error = json.loads(text)["error"]
    named, code = error["param"], error["code"]
    if code in ("invalid_json", "body_too_complex"):
        return None
    if named is None:
        return f"names nothing: {error['message'][:200]}"
    given, told = [str(key) for key in case.place], named.split(".")
    shared = min(len(given), len(told))
    if given[:shared] == told[:shared]:
        return None
    # A text that is too long makes the prompt too long, and so on: what is said must be about it all the same.
    return None if case.what.startswith("huge string") else f"names {named}: {error['message'][:200]}"


def test_the_document_has_every_field(document: Document) -> None:
    names = {case.name for case in cases(document)}
    assert {
        "temperature", "messages.0.tool_calls.0.function.arguments", "tools.0.function.strict", "stop.0", "prompt.0.0",
        "response_format.json_schema.schema", "tool_choice.allowed_tools.tools.0.function.name", "logit_bias.5",
        "metadata.5", "stream_options.coalesce_ms", "structured_outputs.choice.0", "messages.0.content.0.text",
    } <= names  # fmt: skip


def test_no_field_takes_what_it_cannot_be(
    server: Server, document: Document, capsys: pytest.CaptureFixture[str]
) -> None:
    alone = server.http.post("/v1/completions", json=STREAM).text
    neighbour = Neighbour(server, _texts(alone))
    problems, times = [], []
    for case in cases(document):
        begin = time.perf_counter()
        headers = {"content-type": "application/json", **(ADMIN if case.path.startswith("/admin") else {})}
        answer = server.http.request(case.method, case.path, content=case.body, headers=headers)
        times.append(time.perf_counter() - begin)
        problem = problem_of(case, answer.status_code, answer.text)
        if problem is not None:
            problems.append(f"{case.method} {case.path} {case.name} = {case.what}: {problem}")
    neighbour.end()
    times.sort()
    p50, p99 = (times[math.ceil(share * len(times)) - 1] * 1000 for share in (0.5, 0.99))
    with capsys.disabled():
        print(f"\n{len(times)} wrong bodies: answered in {p50:.1f} ms (p50), {p99:.1f} ms (p99)")
        print(f"{neighbour.streams} streams beside them, each as alone")
    assert not problems, f"{len(problems)} of {len(times)}:\n" + "\n".join(problems[:200])


def named(error: dict[str, Any], name: str) -> bool:
    """Whether an error names the field, or a part of it."""
    return error["param"] == name or str(error["param"]).startswith(f"{name}.")


def test_queries_too(server: Server, document: Document) -> None:
    problems = []
    for path, name, schema in document.queries():
        types = document.types(schema)
        for value in ("NaN", "Infinity", "1e999", "9" * 400, "[]", "\x00"):
            if "string" in types and name != "service_tier" and name != "on_timeout":
                continue  # any text is one
            given = {"prompt": "x", "max_tokens": "1", name: value} if path == "/generate" else {name: value}
            answer = server.http.get(path.replace("{stream_id}", "chatcmpl-00ff").replace("{id}", "x"), params=given)
            if answer.status_code != 400 or not named(json.loads(answer.text)["error"], name):
                problems.append(f"{path} {name} = {value[:8]!r}: {answer.status_code} {answer.text[:200]}")
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/tokenize", "/detokenize"])
def test_too_large_a_body(server: Server, path: str) -> None:
    answer = server.http.post(path, content=b'{"prompt":"' + b"x" * 9_000_000)
    assert answer.status_code == 413 and answer.json()["error"]["code"] == "body_too_large"


def _texts(body: str) -> str:
    lines = [line.removeprefix("data: ") for line in body.split("\n") if line.startswith("data: {")]
    return "".join(json.loads(line)["choices"][0]["text"] for line in lines)


class Neighbour:
    """Streams, one after the other, of which each must be what it is alone."""

    def __init__(self, server: Server, alone: str) -> None:
        self.streams = 0
        self._server, self._alone = server, alone
        self._wrong: list[str] = []
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._ending.is_set():
            text = _texts(self._server.http.post("/v1/completions", json=STREAM).text)
            self.streams += 1
            if text != self._alone:
                self._wrong.append(text)

    def end(self) -> None:
        self._ending.set()
        self._thread.join(30)
        assert not self._wrong and self.streams, self._wrong[:1]
