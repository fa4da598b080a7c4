"""Requests that do not come to an end, connections that say nothing, and too many of them."""

import json
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing

import httpx
import pytest
from raw_wire import BODY, POST, Wire, check_refusal, server_ends, wait_for, whole
from server_rig import Rig, make_rig, sse

GET = b"GET /health/live HTTP/1.1\r\nHost: x\r\n"
LIVE = GET + b"\r\n"
QUICK = {"head_s": 0.3, "body_s": 0.3, "stall_s": 0.3}


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    with make_rig(server=QUICK) as made:
        yield made
        made.wait_idle()


@pytest.fixture
def wire(rig: Rig) -> Iterator[Wire]:
    with closing(Wire(rig)) as made:
        yield made


@pytest.mark.parametrize("before", [0, 2])
@pytest.mark.parametrize(
    ("start", "piece"),
    [(b"GE", b""), (b"GET /", b"a"), (GET, b"a"), (GET + b"X: ", b"a"), (GET, b"X: a\r\n")],
    ids=["method", "path", "name", "value", "headers"],
)
def test_a_head_byte_by_byte(wire: Wire, start: bytes, piece: bytes, before: int) -> None:
    for _ in range(before):  # on a connection that has been used, too
        wire.send(LIVE)
        assert wire.answer()[0] == 200
    wire.send(start)
    wire.drip(piece)
    check_refusal(wire, 408, "request_timeout")
    assert wire.ended()


def test_a_connection_that_says_nothing(wire: Wire) -> None:
    assert wire.ended()


@pytest.mark.parametrize("before", [0, 1])
def test_line_ends_for_ever(wire: Wire, before: int) -> None:
    for _ in range(before):
        wire.send(LIVE)
        assert wire.answer()[0] == 200
    wire.drip(b"\r\n")
    assert wire.ended()


@pytest.mark.parametrize(
    ("head", "piece"),
    [
        (POST + b"Content-Length: 9000\r\n\r\n" + BODY, b""),
        (POST + b"Content-Length: 9000\r\n\r\n", b" "),
        (POST + b"Content-Length: 9000\r\nExpect: 100-continue\r\n\r\n", b""),
        (POST + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
        (POST + b"Transfer-Encoding: chunked\r\n\r\n", b"\r"),
    ],
    ids=["half", "drip", "continue", "chunks", "frame"],
)
def test_a_body_without_end(rig: Rig, wire: Wire, head: bytes, piece: bytes) -> None:
    wire.send(head)
    if b"100-continue" in head:
        assert wire.line().startswith(b"HTTP/1.1 100 ") and wire.line() == b"\r\n"
    if piece == b"\r":
        wire.send(b"5;")
        piece = b"x"
    if piece:
        wire.drip(piece)
    check_refusal(wire, 408, "request_timeout")
    assert wire.ended()
    rig.wait_idle()


def test_a_body_without_end_that_nobody_wants(wire: Wire) -> None:
    wire.send(b"POST /nothing HTTP/1.1\r\nHost: x\r\nContent-Length: 9000\r\n\r\n")
    assert wire.answer()[0] == 404
    wire.drip(b" ")
    assert wire.ended()


def test_a_body_that_comes_after_its_answer_leaves_the_connection(wire: Wire) -> None:
    for _ in range(2):
        wire.send(b"POST /nothing HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n")
        assert wire.answer()[0] == 404
        wire.send(b"ab")
    wire.send(whole(BODY))
    assert wire.answer()[0] == 200


def test_a_body_that_comes_after_its_answer_leaves_no_connection_for_ever() -> None:
    with make_rig(server={"idle_connection_s": 1}) as rig, closing(Wire(rig)) as wire:
        wire.send(b"POST /nothing HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n")
        assert wire.answer()[0] == 404
        wire.send(b"ab")
        assert wire.ended()


def test_whoever_is_served_has_time() -> None:
    """Streams and waits that are far longer than any time a client has to send something."""
    with make_rig(
        server={**QUICK, "keep_alive_s": 0.05, "header_wait_s": 0.05}, pace=0.01, engine={"max_sequences": 1}
    ) as rig:
        body = {"prompt": "x", "max_tokens": 120, "temperature": 0, "ignore_eos": True, "stream": True}
        got: list[str] = []

        def ask() -> None:
            with httpx.Client(base_url=rig.url, timeout=60) as client:
                got.append(client.post("/v1/completions", json=body).text)

        threads = [threading.Thread(target=ask) for _ in range(3)]  # each waits for those before it
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert all(sse(text)[-1] == "[DONE]" for text in got)
        texts = {"".join(p["choices"][0]["text"] for p in map(json.loads, sse(text)[:-1])) for text in got}
        assert len(texts) == 1 and ": keep-alive" in "".join(got)


def test_half_a_request_behind_a_stream_does_not_cut_it() -> None:
    with make_rig(server=QUICK, pace=0.01) as rig, closing(Wire(rig)) as wire:
        wire.send(whole(b'{"prompt":"x","max_tokens":120,"stream":true,"ignore_eos":true}'))
        wire.send(GET)  # it may be waited for until the stream has ended, and then as long as ever
        data = wire.rest()
        stream, _, refusal = data.partition(b"0\r\n\r\n")
        assert stream.endswith(b"data: [DONE]\n\n\r\n")
        assert refusal.startswith(b"HTTP/1.1 408 ")


def test_a_storm_of_them_holds_nobody_up() -> None:
    kinds = [
        b"",
        b"GET / HT",
        b"\r\n",
        POST + b"Content-Length: 9000\r\n\r\n{",
        POST + b"Transfer-Encoding: chunked\r\n\r\n",
    ]
    with make_rig(server={**QUICK, "head_s": 1.0, "body_s": 1.0}) as rig:
        alone = rig.openai.completions.create(model="tiny", prompt="n", max_tokens=50, temperature=0).choices[0].text
        base = server_ends(rig)
        with ExitStack() as stack:
            wires = [stack.enter_context(closing(Wire(rig))) for _ in range(200)]
            for i, wire in enumerate(wires):
                wire.send(kinds[i % len(kinds)])
            beside = rig.openai.completions.create(model="tiny", prompt="n", max_tokens=50, temperature=0)
            assert beside.choices[0].text == alone
            wait_for(lambda: server_ends(rig) <= base)
        rig.wait_idle()


def test_connections_are_bounded() -> None:
    with make_rig(server={"max_connections": 5}) as rig, ExitStack() as stack:
        base = server_ends(rig)

        def connect() -> Wire:
            return stack.enter_context(closing(Wire(rig)))

        good = [connect() for _ in range(5)]
        assert all(serves(wire) for wire in good)
        many = [connect() for _ in range(400)]  # more than are given time
        for wire in many[:100]:
            check_refusal(wire, 503, "too_many_connections")
            assert wire.ended()
        wait_for(lambda: server_ends(rig) <= base + len(good))
        told = connect()  # one that has sent its request before it can know
        told.send(whole(BODY))
        status, headers, _ = told.answer()
        assert status == 503 and float(headers["retry-after"]) >= 1 and float(headers["retry-after-ms"]) >= 1
        assert all(serves(wire) for wire in good)
        good[0].close()
        wait_for(lambda: serves(connect()))
        assert all(serves(wire) for wire in good[1:])


def serves(wire: Wire) -> bool:
    wire.send(whole(BODY))
    return wire.answer()[0] == 200
