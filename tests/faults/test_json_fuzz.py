"""Bodies made wrong at random: an answer or a clear refusal, never a 500 or a hang, and nothing stays behind."""

import json
import logging
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from json_mutations import mutated
from server_rig import Rig
from shared_rig import rig_in

CORPUS = Path(__file__).parent / "corpus" / "bodies.json"  # what once failed: [path, body as latin-1 text]
CHAT, TEXT, RESPONSES, TOKENIZE = "/v1/chat/completions", "/v1/completions", "/v1/responses", "/tokenize"
CASES, MORE = 700, 20_000
SEED = 1
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"a": {"type": "string", "maxLength": 3}, "b": {"type": "array", "items": {"enum": [1, 2]}}},
    "required": ["a"],
    "additionalProperties": False,
}
TOOL = {"type": "function", "function": {"name": "look", "parameters": SCHEMA, "description": "d", "strict": True}}
CALL = {"id": "c", "type": "function", "function": {"name": "look", "arguments": '{"a":"b"}'}}
SAMPLING: dict[str, Any] = {
    "model": "tiny", "temperature": 0.7, "top_p": 0.9, "top_k": 5, "min_p": 0.1, "seed": 7, "n": 2, "stop": ["zq"],
    "stop_token_ids": [5], "logit_bias": {"5": 1.5, "40": -100}, "presence_penalty": 0.5, "repetition_penalty": 1.1,
    "max_tokens": 6, "min_tokens": 1, "timeout": 10.0, "on_timeout": "error", "service_tier": "flex", "user": "u",
    "metadata": {"a": "b"}, "ignore_eos": True, "return_token_ids": True,
}  # fmt: skip
FORMAT = {"type": "json_schema", "json_schema": {"name": "it", "schema": SCHEMA, "strict": True}}
USER = {"role": "user", "content": [{"type": "text", "text": "hi"}]}
STREAMED = {"stream": True, "stream_options": {"include_usage": True, "coalesce_ms": 1}}
GOOD: list[tuple[str, dict[str, Any]]] = [
    (CHAT, {**SAMPLING, "messages": [{"role": "system", "content": "s"}, USER], "logprobs": True, "top_logprobs": 3}),
    (CHAT, {"messages": [USER, {"role": "assistant", "tool_calls": [CALL]}], "max_tokens": 3, **STREAMED}),
    (CHAT, {"messages": [USER], "tools": [TOOL], "tool_choice": "required", "max_tokens": 5}),
    (CHAT, {"messages": [USER], "response_format": FORMAT, "max_tokens": 9, "chat_template_kwargs": {}}),
    (TEXT, {**SAMPLING, "prompt": ["a", "b"], "logprobs": 2, "best_of": 3}),
    (TEXT, {**SAMPLING, "prompt": [[5, 6], [7]], **STREAMED}),
    (TEXT, {"prompt": "x", "structured_outputs": {"regex": "[a-c]{2,4}"}, "max_tokens": 5}),
    (TEXT, {"prompt": "x", "structured_outputs": {"grammar": 'start: "a" | /b+/'}, "max_tokens": 5, **STREAMED}),
    (TEXT, {"prompt": "x", "structured_outputs": {"choice": ["yes", "no"]}, "max_tokens": 5}),
    (TEXT, {"prompt": "x", "structured_outputs": {"json": SCHEMA}, "max_tokens": 5}),
    (RESPONSES, {"model": "tiny", "input": "hi", "max_output_tokens": 4, "store": False, "instructions": "i"}),
    (RESPONSES, {
        "input": [
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]},
            {"type": "function_call", "call_id": "c", "name": "look", "arguments": '{"a":"b"}'},
        ],
        "tools": [{"type": "function", "name": "look", "parameters": SCHEMA, "strict": True}],
        "text": {"format": {"type": "json_schema", "name": "it", "schema": SCHEMA}},
        "max_output_tokens": 4, "metadata": {"a": "b"}, "truncation": "auto", "stream": True, "temperature": 0.5,
    }),
    (TOKENIZE, {"prompt": "hello", "add_special_tokens": False}),
    (TOKENIZE, {"messages": [USER]}),
    ("/detokenize", {"tokens": [5, 6, 7]}),
]  # fmt: skip


class Watch(logging.Handler):
    """Whatever the server thought worth an error line."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(self.format(record)[-3000:])


@pytest.fixture(scope="module")
def watch() -> Iterator[Watch]:
    handler = Watch()
    logging.getLogger().addHandler(handler)
    yield handler
    logging.getLogger().removeHandler(handler)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with rig_in(tmp_path_factory.mktemp("server"), runner={"context": 2048, "blocks": 512}) as rig:
        yield rig


def problem_of(answer: httpx.Response) -> str | None:
    """What is wrong with an answer, whatever was asked."""
    status, text = answer.status_code, answer.text
    if status == 200:
        if not answer.headers["content-type"].startswith("text/event-stream"):
            json.loads(text, parse_constant=lambda name: pytest.fail(name))
        elif '"server_error"' in text or "internal error" in text:
            return f"a stream with {text[-300:]}"
        return None
    if not 400 <= status < 500:
        return f"{status}: {text[:300]}"
    error = json.loads(text)["error"]
    if error.keys() != {"message", "type", "param", "code"} or not error["message"] or len(error["message"]) > 2000:
        return f"{status}: {text[:300]}"
    return None


def run(rig: Rig, watch: Watch, cases: Iterator[tuple[str, bytes]]) -> None:
    problems: list[str] = []
    for path, body in cases:
        watch.said.clear()
        try:
            answer = rig.http.post(path, content=body, headers={"content-type": "application/json"})
            problem = problem_of(answer)
        except (httpx.HTTPError, ValueError) as error:
            problem = repr(error)
        if problem or watch.said:
            short = json.dumps([path, body[:2000].decode("latin-1")])
            problems.append(f"{short}: {problem} {' '.join(watch.said)}")
    assert not problems, f"{len(problems)}:\n" + "\n".join(problems[:20])
    rig.wait_idle()


def fuzzed(seed: int, count: int) -> Iterator[tuple[str, bytes]]:
    for number in range(count):
        rng = random.Random(f"{seed}/{number}")
        path, body = rng.choice(GOOD)
        yield path, mutated(body, rng)


@pytest.mark.parametrize(("path", "body"), GOOD, ids=lambda value: str(value)[:40])
def test_what_is_mutated_is_good(server: Rig, path: str, body: dict[str, Any]) -> None:
    answer = server.http.post(path, json=body)
    assert answer.status_code == 200, answer.text


def test_bodies_that_once_failed(server: Rig, watch: Watch) -> None:
    run(server, watch, ((path, body.encode("latin-1")) for path, body in json.loads(CORPUS.read_text())))


def test_any_body_is_answered(server: Rig, watch: Watch) -> None:
    run(server, watch, fuzzed(SEED, CASES))


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_any_of_many_bodies_is_answered(server: Rig, watch: Watch) -> None:
    run(server, watch, fuzzed(SEED + 1, MORE))
