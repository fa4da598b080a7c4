"""/v1/stream: many requests on one WebSocket, each with the events that HTTP has."""

import json
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from server_rig import Rig, make_rig, sse
from websockets.exceptions import InvalidStatus
from websockets.sync.client import ClientConnection, connect

TEXT = {"prompt": "go", "max_tokens": 20, "seed": 1}
CHAT = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 20, "seed": 1}
ENDS = ("done", "error", "cancelled")


@contextmanager
def opened(rig: Rig, key: str | None = None) -> Iterator[ClientConnection]:
    headers = {"authorization": f"Bearer {key}"} if key else {}
    with connect(rig.url.replace("http", "ws") + "/v1/stream", additional_headers=headers, max_size=None) as socket:
        yield socket


def say(socket: ClientConnection, type: str = "create", **fields: Any) -> None:
    socket.send(json.dumps({"type": type, **fields}))


def hear(socket: ClientConnection) -> dict[str, Any]:
    return dict(json.loads(socket.recv(20)))


def until_the_end(socket: ClientConnection, id: str) -> list[dict[str, Any]]:
    """All messages about one request, where it is the only one."""
    found = [hear(socket)]
    while found[-1]["type"] not in ENDS:
        found.append(hear(socket))
    assert all(message["id"] == id for message in found)
    return found


def told(message: dict[str, Any]) -> Any:
    """What does not differ between two runs of one request."""
    return {key: value for key, value in message["data"].items() if key not in ("id", "created")}


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    with make_rig() as rig:
        yield rig


@pytest.mark.parametrize(
    ("endpoint", "path", "body"),
    [
        ("chat.completions", "/v1/chat/completions", CHAT),
        ("chat.completions", "/v1/chat/completions", {**CHAT, "n": 3, "logprobs": True, "top_logprobs": 2}),
        ("completions", "/v1/completions", TEXT),
        ("completions", "/v1/completions", {**TEXT, "prompt": ["a", "b"], "stop": "e", "echo": True}),
        ("completions", "/v1/completions", {**TEXT, "stream_options": {"include_usage": True}}),
    ],
)
def test_the_same_events(rig: Rig, endpoint: str, path: str, body: dict[str, Any]) -> None:
    with opened(rig) as socket:
        say(socket, id="a", endpoint=endpoint, body=body)
        *events, end = until_the_end(socket, "a")
    assert end == {"type": "done", "id": "a"}
    assert len({event["event_id"] for event in events}) == len(events)
    *chunks, _ = sse(rig.http.post(path, json={**body, "stream": True}).text)
    of_choice = [[told(e) for e in events if index in choices(e["data"])] for index in range(4)]
    expected = [[told({"data": c}) for c in map(json.loads, chunks) if index in choices(c)] for index in range(4)]
    if "stream_options" in body:  # how much was cached differs
        assert events[-1]["data"]["usage"]["total_tokens"] == json.loads(chunks[-1])["usage"]["total_tokens"]
    assert of_choice == expected


def choices(chunk: dict[str, Any]) -> list[int]:
    return [choice["index"] for choice in chunk["choices"]]


def test_many_at_once_and_each_its_own(rig: Rig) -> None:
    chance = random.Random(1)
    bodies = {str(i): {**TEXT, "prompt": chr(97 + i % 26) * (1 + i % 7), "seed": i} for i in range(60)}
    texts = dict.fromkeys(bodies, "")
    with opened(rig) as socket:
        for id in chance.sample(sorted(bodies), len(bodies)):
            say(socket, id=id, endpoint="completions", body=bodies[id])
        left = set(bodies)
        while left:
            message = hear(socket)
            if message["type"] == "event":
                texts[message["id"]] += message["data"]["choices"][0]["text"]
            else:
                assert message["type"] == "done", message
                left.remove(message["id"])
    for id, body in bodies.items():
        assert texts[id] == rig.http.post("/v1/completions", json=body).json()["choices"][0]["text"]
    rig.wait_idle()


def test_cancel_ends_one_alone() -> None:
    with make_rig(pace=0.01, promise={"on_stream_drop": "finish"}) as rig, opened(rig) as socket:
        for id, options in (("a", {}), ("b", {}), ("c", {"resumable": True})):
            say(socket, id=id, endpoint="completions", body={**TEXT, "max_tokens": 400, "stream_options": options})
        seen: set[str] = set()
        while len(seen) < 3:
            seen.add(hear(socket)["id"])
        for id in ("a", "c"):
            say(socket, "cancel", id=id)
        ended = []
        while len(ended) < 2:
            message = hear(socket)
            if message["type"] in ENDS:
                ended.append((message["type"], message["id"]))
        assert sorted(ended) == [("cancelled", "a"), ("cancelled", "c")]
        rig.wait(lambda load: load.running == 1)
        assert hear(socket)["id"] == "b"
        say(socket, "cancel", id="nobody")  # harmless
        say(socket, id="a", endpoint="completions", body=TEXT)  # the name is free again
        while hear(socket) != {"type": "done", "id": "a"}:
            pass


def test_a_client_that_goes_leaves_nothing_but_what_can_be_resumed() -> None:
    with make_rig(pace=0.01) as rig:
        with opened(rig) as socket:
            for id in "ab":
                say(socket, id=id, endpoint="completions", body={**TEXT, "max_tokens": 300})
            body = {**TEXT, "max_tokens": 60, "stream_options": {"resumable": True}}
            say(socket, id="c", endpoint="completions", body=body)
            last = ""
            while not last:
                message = hear(socket)
                last = message["event_id"] if message["id"] == "c" else ""
        rig.wait(lambda load: load.running == 1)
        stream, _, number = last.rpartition("-")
        with opened(rig) as socket:
            say(socket, "resume", id="x", stream=stream, after=int(number))
            *events, end = until_the_end(socket, "x")
        assert end["type"] == "done" and events[0]["event_id"] == f"{stream}-{int(number) + 1}"
        whole = [json.loads(data) for data in sse(rig.http.get(f"/v1/streams/{stream}?after={number}").text)[:-1]]
        assert [event["data"] for event in events] == whole
        rig.wait_idle()


def test_errors_end_a_request_and_not_the_connection() -> None:
    with make_rig(pace=0.02, queue={"max_requests": 0}, engine={"max_sequences": 1}) as rig, opened(rig) as socket:
        for message, param in (
            ({"type": "create", "id": "a", "body": {**CHAT, "n": 0}}, "n"),
            ({"type": "create", "id": "a", "body": {**CHAT, "stream": False}}, "stream"),
            ({"type": "create", "id": "a", "body": [1]}, "body"),
            ({"type": "create", "id": "a", "body": {**TEXT}}, "messages"),
            (
                {"type": "create", "id": "a", "body": {**CHAT, "messages": [{"role": "user", "content": "x" * 900}]}},
                None,
            ),
            ({"type": "create", "id": "a", "endpoint": "images", "body": CHAT}, None),
            ({"type": "create", "id": "a", "body": CHAT, "more": 1}, None),
            ({"type": "resume", "id": "a", "stream": "cmpl-00" + "0" * 22}, None),
            ({"type": "dance", "id": "a"}, None),
        ):
            socket.send(json.dumps(message))
            [error] = until_the_end(socket, "a")
            assert error["type"] == "error" and error["status"] in (400, 404), error
            assert param is None or error["error"]["param"] == param, error
        for raw in ("", "[", "[]", "null", '"x"', '{"id":7}', '{"type":"create","id":"a","body":{"x":"\\ud83d"}}'):
            socket.send(raw)
            assert hear(socket)["status"] == 400
        with opened(rig) as other:
            say(other, id="a", body={**CHAT, "max_tokens": 200})
            hear(other)
            say(other, id="a", body=CHAT)
            duplicate = hear(other)
            while duplicate["type"] != "error":
                duplicate = hear(other)
            assert duplicate["error"]["code"] == "duplicate_id"
            say(other, id="b", body=CHAT)
            refused = hear(other)
            while refused["id"] != "b":
                refused = hear(other)
            assert refused["status"] == 429 and 0 < refused["retry_after_ms"] <= 60_000


def test_an_error_in_the_middle_is_the_last_message() -> None:
    with make_rig(pace=0.02) as rig, opened(rig) as socket:
        say(socket, id="a", endpoint="completions", body={**TEXT, "max_tokens": 400, "timeout": 0.5})
        *events, error = until_the_end(socket, "a")
        assert len(events) > 3 and error["type"] == "error" and error["error"]["code"] == "deadline_exceeded"
        rig.wait_idle()


def test_keys() -> None:
    with make_rig(keys=({"key": "k", "tenant": "a"},)) as rig:
        with pytest.raises(InvalidStatus) as refused, opened(rig):
            pass
        assert refused.value.response.status_code == 401
        with opened(rig, "k") as socket:
            say(socket, id="a", body=CHAT)
            assert until_the_end(socket, "a")[-1]["type"] == "done"
