"""Below the application: what is not HTTP, what has no end, and requests that would rather speak something else."""

import json
from collections.abc import Iterator

import pytest
from raw_wire import BODY, POST, Wire, check_refusal, wait_for, whole
from server_rig import Rig

UPGRADE = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEA\r\n"


@pytest.fixture
def wire(rig: Rig) -> Iterator[Wire]:
    made = Wire(rig)
    yield made
    made.close()


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03hello\r\n\r\n",  # TLS
        b"GET / HTTP/9.9\r\n\r\n",
        b"CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n",
        POST + b"Content-Length: -5\r\n\r\n",
        POST + b"Content-Length: " + b"9" * 5000 + b"\r\n\r\n",
        POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        POST + b"Transfer-Encoding: chunked\r\n\r\nZZ\r\n\r\n",
    ],
    ids=lambda data: data[:60],
)
def test_not_http(wire: Wire, data: bytes) -> None:
    wire.send(data)
    check_refusal(wire, 400, "malformed_http")


@pytest.mark.parametrize(
    ("head", "piece"),
    [
        (b"GET /health/live HTTP/1.1\r\nX: ", b"a" * 10_000),
        (b"GET /health/live HTTP/1.1\r\n", b"X: a\r\n" * 1000),
        (b"GET /", b"a" * 10_000),
        (POST + b"Transfer-Encoding: chunked\r\n\r\n0\r\nX: ", b"a" * 10_000),  # in the trailers
        (POST + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n" * 1000),  # more frame than body
    ],
    ids=["header", "headers", "url", "trailer", "chunks"],
)
def test_no_end(rig: Rig, wire: Wire, head: bytes, piece: bytes) -> None:
    wire.send(head)
    wire.flood(piece, 30_000_000)
    assert rig.http.get("/health/live").status_code == 200


def test_too_long_a_header_is_told(wire: Wire) -> None:
    wire.send(b"GET /health/live HTTP/1.1\r\nX: " + b"a" * (300 << 10))
    check_refusal(wire, 431, "headers_too_large")


def test_pipelined_bodies_do_not_count_as_head(wire: Wire) -> None:
    wire.send(whole(BODY + b" " * 300_000) * 5)
    for _ in range(5):
        assert wire.answer()[0] == 200


def test_bodies_do_not_count_as_head(wire: Wire) -> None:
    for _ in range(2):  # one connection
        padded = BODY + b" " * 2_000_000
        wire.send(whole(padded))
        assert wire.answer()[0] == 200
        pieces = [BODY, *[b" " * 8000] * 200]
        wire.send(POST + b"Transfer-Encoding: chunked\r\n\r\n")
        wire.send(b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n")
        assert wire.answer()[0] == 200


@pytest.mark.parametrize("split", [0, 30, 250, -10])
def test_upgrade_is_ignored(wire: Wire, split: int) -> None:
    """Java's HttpClient asks for h2c with every first request; it must not lose the request's body."""
    data = whole(BODY, UPGRADE)
    for _ in range(2):
        wire.send(data[:split])
        wire.send(data[split:])
        status, _, body = wire.answer()
        assert status == 200, body
        assert json.loads(body)["choices"][0]["finish_reason"] == "length"
    wire.send(whole(BODY))  # and the connection goes on as ever
    assert wire.answer()[0] == 200


def test_chunked_upgrade_and_websocket(wire: Wire) -> None:
    chunked = b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY)
    wire.send(POST + UPGRADE + chunked)
    assert wire.answer()[0] == 200
    websocket = b"Connection: Upgrade\r\nUpgrade: websocket\r\n"
    keyed = websocket + b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    for path, headers, expected in (  # there is a WebSocket on one path only, and only for who asks in its words
        (b"/v1/nothing", keyed, 404),
        (b"/health/live", keyed, 200),
        (b"/v1/responses", websocket, 405),
    ):
        wire.send(b"GET " + path + b" HTTP/1.1\r\nHost: x\r\n" + headers + b"\r\n")
        assert wire.answer()[0] == expected
    assert wire.upgraded(b"GET /v1/responses?x=1 HTTP/1.1\r\nHost: x\r\n" + keyed + b"\r\n")


STREAM = b'{"prompt":"hi","max_tokens":100,"ignore_eos":true,"stream":true}'
WEBSOCKET = (
    b"GET /v1/responses HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


def whole_stream(wire: Wire) -> bool:
    """Reads a chunked answer to its end, as an exact reader; whether it was one with [DONE] and nothing else in it."""
    assert wire.line().startswith(b"HTTP/1.1 200 ")
    while wire.line() != b"\r\n":
        pass
    events = b""
    while size := int(wire.line(), 16):
        events += wire.take(size)
        assert wire.line() == b"\r\n"
    assert wire.line() == b"\r\n"
    return events.endswith(b"data: [DONE]\n\n") and b"HTTP/1.1" not in events


@pytest.mark.parametrize("pause", [False, True])
@pytest.mark.parametrize(
    ("between", "bad", "status"),
    [
        (b"", b"what is this\r\n\r\n", 400),
        (b"", POST + b"Transfer-Encoding: chunked\r\n\r\nZZ\r\n\r\n", 400),  # waits its turn when it turns out bad
        (b"", b"CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"", WEBSOCKET, 400),
        (b"", b"GET / HTTP/1.1\r\nX: " + b"a" * (300 << 10), 431),
        (whole(BODY), POST + b"Content-Length: x\r\n\r\n", 400),
    ],
    ids=["nonsense", "chunks", "connect", "websocket", "head", "behind another"],
)
def test_what_is_wrong_behind_a_stream_is_told_behind_it(
    rig: Rig, wire: Wire, between: bytes, bad: bytes, status: int, pause: bool
) -> None:
    rig.wait_idle()
    rig.pace[0] = 0.003
    wire.send(whole(STREAM) + (b"" if pause else between + bad))
    if pause:
        wait_for(lambda: rig.frontend.live == 1)
        wire.send(between + bad)
    assert whole_stream(wire)
    if between:
        assert wire.answer()[0] == 200
    check_refusal(wire, status, "headers_too_large" if status == 431 else "malformed_http")
    assert wire.ended()
    rig.pace[0] = 0.0


def test_who_goes_away_with_a_request_behind_its_stream_cancels_it(rig: Rig) -> None:
    rig.wait_idle()
    wire = Wire(rig)
    rig.pace[0] = 0.02
    wire.send(whole(STREAM.replace(b"100", b"450")) + whole(BODY))
    running = rig.wait(lambda load: load.running == 1)
    wire.close()
    assert rig.wait_idle().steps - running.steps < 100
    rig.pace[0] = 0.0
