"""The exact shape of OpenAI's streams, and what comes into a silence."""

import json
from typing import Any

import pytest
from server_rig import Rig, make_rig, sse

CHAT = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 12, "temperature": 0}


def events(rig: Rig, path: str, body: dict[str, Any]) -> list[Any]:
    response = rig.http.post(path, json={**body, "stream": True})
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/event-stream")
    data = sse(response.text)
    assert data[-1] == "[DONE]" and data.count("[DONE]") == 1
    return [json.loads(item) for item in data[:-1]]


def test_chat_chunks(rig: Rig) -> None:
    chunks = events(rig, "/v1/chat/completions", CHAT)
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert len({chunk["id"] for chunk in chunks}) == 1
    assert all(
        chunk.keys() == {"id", "object", "created", "model", "system_fingerprint", "service_tier", "choices"}
        for chunk in chunks
    )
    choices = [chunk["choices"][0] for chunk in chunks]
    first, last = choices[0], choices[-1]
    assert first["delta"]["role"] == "assistant" and first["delta"]["content"]
    assert all("role" not in choice["delta"] for choice in choices[1:])
    assert all(choice["delta"]["content"] for choice in choices[:-1])
    assert [choice["finish_reason"] for choice in choices] == [None] * (len(choices) - 1) + ["length"]
    assert last["delta"] == {}


def test_completion_chunks(rig: Rig) -> None:
    body = {"model": "tiny", "prompt": "hi", "max_tokens": 12, "temperature": 0}
    choices = [chunk["choices"][0] for chunk in events(rig, "/v1/completions", body)]
    assert all(choice["text"] for choice in choices[:-1])
    assert [choice["finish_reason"] for choice in choices] == [None] * (len(choices) - 1) + ["length"]


@pytest.mark.parametrize(
    ("options", "asked"),
    [(None, False), ({}, False), ({"include_usage": False}, False), ({"include_usage": True}, True)],
)
def test_usage_chunk_only_when_asked(rig: Rig, options: dict[str, bool] | None, asked: bool) -> None:
    chunks = events(rig, "/v1/chat/completions", {**CHAT, "stream_options": options})
    if not asked:
        assert all("usage" not in chunk and chunk["choices"] for chunk in chunks)
        return
    *others, last = chunks
    assert last["choices"] == [] and last["usage"]["completion_tokens"] == 12
    assert all(chunk["usage"] is None for chunk in others)


def test_continuous_usage(rig: Rig) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    chunks = events(rig, "/v1/chat/completions", {**CHAT, "stream_options": options})
    counts = [chunk["usage"]["completion_tokens"] for chunk in chunks]
    assert counts == sorted(counts) and counts[-1] == 12 and counts[0] >= 1
    assert len({chunk["usage"]["prompt_tokens"] for chunk in chunks}) == 1


def test_nothing_but_an_end_token_still_says_who_spoke() -> None:
    with make_rig(runner={"end_probability": 1.0}) as rig:
        (chunk,) = events(rig, "/v1/chat/completions", CHAT)
        assert chunk["choices"][0]["delta"] == {"role": "assistant", "content": ""}
        assert chunk["choices"][0]["finish_reason"] == "stop"
        whole = rig.http.post("/v1/chat/completions", json=CHAT).json()
        assert whole["choices"][0]["message"]["content"] == "" and whole["usage"]["completion_tokens"] == 1


def test_request_id_in_and_out(rig: Rig) -> None:
    given = rig.http.post("/v1/chat/completions", json=CHAT, headers={"x-request-id": "mine-1"})
    assert given.headers["x-request-id"] == "mine-1"
    made = [rig.http.get("/health/live").headers["x-request-id"] for _ in range(2)]
    assert made[0] != made[1]
    assert rig.http.get("/health/live", headers={"x-request-id": "a b"}).headers["x-request-id"] != "a b"


def test_silence_is_broken_by_a_comment_on_a_wall_clock() -> None:
    with make_rig(pace=0.5, server={"keep_alive_s": 0.1}) as rig:
        text = rig.http.post("/v1/chat/completions", json={**CHAT, "max_tokens": 2, "stream": True}).text
        assert text.count(": keep-alive\n\n") >= 3
        assert ": ping" not in text
        assert 3 <= len(sse(text)) <= 4  # a busy machine may read both tokens at once


def test_headers_come_after_the_header_wait_at_the_latest() -> None:
    with (
        make_rig(server={"header_wait_s": 0.1}, engine={"max_sequences": 1}, pace=0.05) as rig,
        rig.http.stream("POST", "/v1/chat/completions", json={**CHAT, "max_tokens": 400, "stream": True}) as running,
        rig.http.stream("POST", "/v1/chat/completions", json={**CHAT, "stream": True}) as queued,
    ):
        assert running.status_code == queued.status_code == 200
        assert rig.wait(lambda load: load.waiting == 1)
