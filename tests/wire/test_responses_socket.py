"""The WebSocket on /v1/responses: what HTTP sends, and what only a connection can have."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from server_rig import Rig, make_rig
from websockets.exceptions import InvalidStatus
from websockets.sync.client import ClientConnection, connect

BODY: dict[str, Any] = {"type": "response.create", "input": "Tell me a tale.", "max_output_tokens": 30, "seed": 5}
TERMINAL = ("response.completed", "response.incomplete", "response.failed", "error")


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with make_rig(server={"store_path": tmp_path_factory.mktemp("store") / "r.db"}) as made:
        yield made
        made.wait_idle()


def open_socket(rig: Rig, **options: Any) -> ClientConnection:
    return connect(rig.url.replace("http", "ws") + "/v1/responses", **options)


def to_the_end(socket: ClientConnection, lane: str | None = None) -> list[dict[str, Any]]:
    """The events of one lane up to the end of its response."""
    got: list[dict[str, Any]] = []
    while not got or got[-1]["type"] not in TERMINAL:
        event = json.loads(socket.recv(timeout=20))
        if event.get("stream_id") == lane:
            got.append(event)
    return got


def ask(socket: ClientConnection, **body: Any) -> list[dict[str, Any]]:
    socket.send(json.dumps({**BODY, **body}))
    return to_the_end(socket, body.get("stream_id"))


def text(events: list[dict[str, Any]]) -> str:
    return "".join(event["delta"] for event in events if event["type"] == "response.output_text.delta")


@pytest.mark.parametrize("store", [True, False])
def test_the_same_events_as_http(rig: Rig, store: bool) -> None:
    body = {name: value for name, value in BODY.items() if name != "type"}
    sent = rig.http.post("/v1/responses", json={**body, "store": store, "stream": True}).text
    http = [json.loads(line.removeprefix("data: ")) for line in sent.split("\n") if line.startswith("data: ")]
    with open_socket(rig) as socket:
        for _ in range(2):  # one after the other, on one connection
            events = ask(socket, store=store)
            assert [e["type"] for e in events] == [e["type"] for e in http]
            assert [e["sequence_number"] for e in events] == list(range(len(events)))
            assert text(events) == text(http)
            id = events[0]["response"]["id"]
            found = rig.http.get(f"/v1/responses/{id}")
            assert found.json() == events[-1]["response"] if store else found.status_code == 404


@pytest.mark.parametrize("store", [True, False])
def test_a_conversation_goes_on(rig: Rig, store: bool) -> None:
    with open_socket(rig) as socket:
        first = ask(socket, store=store)
        id = first[-1]["response"]["id"]
        second = ask(socket, store=store, input="Go on.", previous_response_id=id)[-1]["response"]
        prompt = f"<user>Tell me a tale.\n<assistant>{text(first)}\n<user>Go on.\n<assistant>"
        assert second["usage"]["input_tokens"] >= len(prompt)
    with open_socket(rig) as socket:
        [*_, last] = ask(socket, input="Go on.", previous_response_id=id)
        assert store or (last["error"]["code"], last["status"]) == ("previous_response_not_found", 400)


def test_what_failed_to_go_on_begins_anew(rig: Rig) -> None:
    with open_socket(rig) as socket:
        id = ask(socket, store=False)[-1]["response"]["id"]
        result = {"type": "function_call_output", "call_id": "none", "output": "x"}
        for input, code in (([result], "invalid_value"), ("x", "previous_response_not_found")):
            [error] = ask(socket, store=False, input=input, previous_response_id=id)
            assert error["error"]["code"] == code


def test_lanes_do_not_wait_for_each_other(tmp_path: Path) -> None:
    with make_rig(pace=0.01, server={"store_path": tmp_path / "r.db"}) as rig, open_socket(rig) as socket:
        socket.send(json.dumps({**BODY, "stream_id": "slow", "max_output_tokens": 200}))
        quick = ask(socket, stream_id="quick", max_output_tokens=3)
        assert quick[-1]["response"]["usage"]["output_tokens"] == 3
        assert ask(socket, max_output_tokens=3)[-1]["response"]["usage"]["output_tokens"] == 3
        assert len(text(to_the_end(socket, "slow"))) > 100
        rig.wait_idle()


def test_a_lane_is_in_order(rig: Rig) -> None:
    with open_socket(rig) as socket:
        for number in range(5):
            socket.send(json.dumps({**BODY, "stream_id": "a", "max_output_tokens": number + 1}))
        counts = [to_the_end(socket, "a")[-1]["response"]["usage"]["output_tokens"] for _ in range(5)]
    assert counts == [1, 2, 3, 4, 5]


def test_to_go_on_from_a_prompt_alone(rig: Rig) -> None:
    for store in (True, False):
        with open_socket(rig) as socket:
            [created, *_, last] = ask(socket, generate=False, store=store)
            assert created["type"] == "response.created" and last["type"] == "response.completed"
            assert last["response"]["output"] == []
            id = last["response"]["id"]
            answer = ask(socket, input="x", previous_response_id=id, store=store)[-1]["response"]
            assert answer["usage"]["input_tokens"] == len("<user>Tell me a tale.\n<user>x\n<assistant>")
            assert (rig.http.get(f"/v1/responses/{id}").status_code == 200) is store


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ("{", "invalid_json"),
        ("5", "invalid_json"),
        (json.dumps({}), "unsupported_parameter"),
        (json.dumps({"type": "response.steer", "previous_response_id": "x", "input": "x"}), "unsupported_parameter"),
        (json.dumps({**BODY, "temperature": 3}), "invalid_value"),
        (json.dumps({**BODY, "stream_id": "a b"}), "invalid_stream_id"),
        (json.dumps({**BODY, "stream_id": 5}), "invalid_stream_id"),
        (json.dumps({**BODY, "stream": False}), "invalid_value"),
        (json.dumps({**BODY, "input": "x" * 600}), "context_length_exceeded"),
        (json.dumps({**BODY, "model": "gpt-9"}), "model_not_found"),
    ],
)
def test_what_is_wrong_is_an_error_event(rig: Rig, message: str, code: str) -> None:
    with open_socket(rig) as socket:
        socket.send(message)
        event = json.loads(socket.recv(timeout=20))
        assert event["type"] == "error" and event["error"]["code"] == code and event["status"] in (400, 404)
        assert ask(socket)[-1]["type"] == "response.incomplete"  # and the connection goes on


def test_an_error_names_its_lane(rig: Rig) -> None:
    with open_socket(rig) as socket:
        assert ask(socket, stream_id="a", top_p=7)[-1]["error"]["param"] == "top_p"


def test_lanes_are_bounded(rig: Rig) -> None:
    with open_socket(rig) as socket:
        for number in range(33):
            last = ask(socket, stream_id=f"lane-{number}", max_output_tokens=1)[-1] if number < 32 else None
        assert last is None
        assert ask(socket, max_output_tokens=1)[-1]["type"] == "response.incomplete"  # the one without a name
        socket.send(json.dumps({**BODY, "stream_id": "one-more"}))
        assert json.loads(socket.recv(timeout=20))["error"]["code"] == "websocket_stream_limit_reached"


@pytest.mark.parametrize(("how", "store", "status"), [("finish", True, "incomplete"), ("cancel", True, "cancelled")])
def test_a_lost_connection_is_as_promised(how: str, store: bool, status: str, tmp_path: Path) -> None:
    with make_rig(pace=0.01, promise={"on_stream_drop": how}, server={"store_path": tmp_path / "r.db"}) as rig:
        with open_socket(rig) as socket:
            socket.send(json.dumps({**BODY, "max_output_tokens": 100}))
            id = json.loads(socket.recv(timeout=20))["response"]["id"]
        rig.wait_idle()
        assert rig.http.get(f"/v1/responses/{id}").json()["status"] == status


def test_what_nobody_can_come_back_for_ends(tmp_path: Path) -> None:
    promise = {"on_stream_drop": "finish"}
    with make_rig(pace=0.01, promise=promise, server={"store_path": tmp_path / "r.db"}) as rig:
        with open_socket(rig) as socket:
            socket.send(json.dumps({**BODY, "max_output_tokens": 400, "store": False}))
            socket.recv(timeout=20)
        rig.wait_idle()
        assert rig.load().steps < 200


def test_a_key_is_asked_for_before_it_opens(tmp_path: Path) -> None:
    with make_rig(keys=({"key": "k1", "tenant": "a"},), server={"store_path": tmp_path / "r.db"}) as rig:
        with pytest.raises(InvalidStatus) as caught:
            open_socket(rig)
        response = caught.value.response
        assert response.status_code == 401 and json.loads(response.body)["error"]["code"] == "invalid_api_key"
        with open_socket(rig, additional_headers={"Authorization": "Bearer k1"}) as socket:
            assert ask(socket)[-1]["type"] == "response.incomplete"


def test_it_pings_and_a_message_is_bounded(tmp_path: Path) -> None:
    server = {"store_path": tmp_path / "r.db", "keep_alive_s": 0.1, "max_body_bytes": 2000}
    with make_rig(server=server) as rig:
        with open_socket(rig) as socket:
            time.sleep(0.5)  # pings are answered by the client's own thread
            assert ask(socket)[-1]["type"] == "response.incomplete"
        with open_socket(rig) as socket:
            socket.send("x" * 3000)
            with pytest.raises(Exception, match="1009"):
                socket.recv(timeout=5)


@pytest.mark.filterwarnings("ignore:connect.. must be used as a context manager:DeprecationWarning")  # the client's
def test_the_clients_own_connection(rig: Rig) -> None:
    with rig.openai.responses.connect() as connection:
        connection.send({"type": "response.create", "model": "tiny", "input": "x", "max_output_tokens": 5})
        for event in connection:
            if event.type == "response.incomplete":
                assert event.response.output_text
                break
