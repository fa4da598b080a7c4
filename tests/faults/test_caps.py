"""Caps of what one request may ask for: at its bound it is served, one more is a 400 that names the field."""

from collections.abc import Iterator
from typing import Any

import pytest
from server_rig import Rig
from shared_rig import rig_in

TEXT, CHAT = "/v1/completions", "/v1/chat/completions"
USER = {"role": "user", "content": "x"}
LIMITS = {
    "max_stop_strings": 2, "max_stop_bytes": 3, "max_logprobs": 2, "max_bias_entries": 2, "max_prompts": 2,
    "max_choices": 3, "max_tools": 1, "max_grammar_bytes": 300, "max_schema_depth": 5,
}  # fmt: skip


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with rig_in(tmp_path_factory.mktemp("server"), limits=LIMITS, runner={"context": 2048, "blocks": 512}) as made:
        yield made


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range((levels - 1) // 2):
        schema = {"properties": {"a": schema}}
    return schema


def tools(count: int) -> list[dict[str, Any]]:
    return [{"type": "function", "function": {"name": f"f{n}"}} for n in range(count)]


@pytest.mark.parametrize(
    ("path", "name", "most", "more"),
    [
        (TEXT, "n", 3, 4),
        (TEXT, "best_of", 3, 4),
        (TEXT, "logprobs", 2, 3),
        (TEXT, "stop", ["a", "b"], ["a", "b", "c"]),
        (TEXT, "stop", "abc", "abcd"),
        (TEXT, "stop", "\u20ac", "\u20aca"),  # of bytes
        (TEXT, "logit_bias", {"5": 1, "6": 1}, {"5": 1, "6": 1, "7": 1}),
        (TEXT, "stop_token_ids", [5] * 1024, [5] * 1025),
        (TEXT, "prompt", ["x"] * 2, ["x"] * 3),
        (TEXT, "structured_outputs.regex", "a" * 200, "a" * 301),
        (TEXT, "structured_outputs.json", nested(5), nested(7)),
        (CHAT, "tools", tools(1), tools(2)),
    ],
)
def test_one_more_is_refused(rig: Rig, path: str, name: str, most: Any, more: Any) -> None:
    for value, status in ((most, 200), (more, 400)):
        outer, _, inner = name.partition(".")
        given = {outer: {inner: value} if inner else value}
        body = {"max_tokens": 2, **({"prompt": "x"} if path == TEXT else {"messages": [USER]}), **given}
        answer = rig.http.post(path, json=body)
        assert answer.status_code == status, answer.text
    assert answer.json()["error"]["param"] == name


def test_a_grammar_that_takes_too_long_to_compile_is_refused(tmp_path_factory: pytest.TempPathFactory) -> None:
    with rig_in(tmp_path_factory.mktemp("server"), limits={"max_grammar_s": 1e-9}) as rig:
        answer = rig.http.post(TEXT, json={"prompt": "x", "structured_outputs": {"regex": "[a-z]{1,50}"}})
        assert answer.status_code == 400 and "too complex" in answer.json()["error"]["message"]


def test_json_inside_a_text_has_the_bounds_of_a_body(rig: Rig) -> None:
    arguments = '{"a":[' + ",".join(["[]"] * 40_000) + "]}"
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}
    item = {"type": "function_call", "call_id": "c", "name": "f", "arguments": arguments}
    for path, body in (
        (CHAT, {"messages": [USER, {"role": "assistant", "tool_calls": [call]}]}),
        ("/v1/responses", {"input": [item]}),
    ):
        answer = rig.http.post(path, json=body)
        assert answer.status_code == 400 and answer.json()["error"]["code"] == "body_too_complex"
