"""Readers that stop reading: each loses its own stream, and nothing of it is kept."""

import json
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import Any

import psutil
import pytest
from raw_wire import Wire, server_ends, wait_for
from server_rig import Rig, make_rig
from websockets.sync.client import connect

TINY = 4096  # bytes of a socket's buffer, so that a reader is behind soon
ROOM = {"max_sequences": 64}
MANY = 40


@contextmanager
def make_slow_rig(**server: Any) -> Iterator[Rig]:
    with make_rig(server=server, send_buffer=TINY, pace=0.002, engine=ROOM, runner={"blocks": 2048}) as rig:
        yield rig


def ask(rig: Rig, **fields: Any) -> socket.socket:
    """A stream with large events that nobody reads."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, TINY)
    connection.connect(("127.0.0.1", int(rig.url.rpartition(":")[2])))
    body = {"prompt": "x", "stream": True, "max_tokens": 450, "logprobs": 5, "ignore_eos": True, **fields}
    data = json.dumps(body).encode()
    connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(data) + data)
    return connection


def are_cut(rig: Rig, others: int) -> bool:
    """Nothing of them is left in the server, though their clients are still there."""
    return server_ends(rig) <= others and rig.frontend.live == 0


@pytest.mark.parametrize(
    "server",
    [
        {"stream_buffer": 16, "stall_s": 1000},
        {"stall_s": 0.5, "keep_alive_s": 0.05},  # the buffer has room for all, and comments do not postpone it
    ],
    ids=["bound", "stall"],
)
@pytest.mark.parametrize("fields", [{}, {"n": 2}], ids=["one", "two"])
def test_only_they_lose_their_streams(server: dict[str, Any], fields: dict[str, Any]) -> None:
    with make_slow_rig(**server) as rig:
        quick = {"model": "tiny", "prompt": "n", "max_tokens": 300, "temperature": 0}
        alone = rig.openai.completions.create(**quick).choices[0].text
        others = server_ends(rig)
        with ExitStack() as stack:
            for _ in range(10):
                stack.enter_context(ask(rig, **fields))
            stream = rig.openai.completions.create(**quick, stream=True)
            assert "".join(chunk.choices[0].text for chunk in stream) == alone
            wait_for(lambda: are_cut(rig, others))
        rig.wait_idle()


def test_a_resumable_stream_goes_on_without_a_reader_that_stalls() -> None:
    with make_slow_rig(stall_s=0.5, stream_buffer=16) as rig:
        others = server_ends(rig)
        with ask(rig, stream_options={"resumable": True}):
            rig.wait(lambda load: load.running == 1)
            wait_for(lambda: are_cut(rig, others))
        assert 'headway_requests_total{outcome="length"} 1.0' in rig.http.get("/metrics").text


def test_one_that_reads_slowly_loses_nothing() -> None:
    with make_slow_rig(stall_s=0.5) as rig, closing(ask(rig, max_tokens=200)) as connection:
        data = b""
        while not data.endswith(b"0\r\n\r\n"):
            time.sleep(0.002)  # far longer in all than a stall may be
            piece = connection.recv(512)
            assert piece, data[-300:]
            data += piece
        assert data.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")


def test_an_answer_in_one_piece_is_not_kept_for_ever() -> None:
    with make_slow_rig(stall_s=0.5) as rig:
        others = server_ends(rig)
        with ask(rig, stream=False, n=4):
            rig.wait(lambda load: load.running == 4)
            wait_for(lambda: are_cut(rig, others))


@pytest.mark.parametrize(
    "request_",
    [b"GET /metrics HTTP/1.1\r\n", b"GET /openapi.json HTTP/1.1\r\nConnection: close\r\n"],
    ids=["idle", "closed"],
)
def test_nor_is_what_is_left_when_the_connection_is_closed(request_: bytes) -> None:
    """Idle: too little is left for the connection to count as full."""
    with make_slow_rig(stall_s=0.5, idle_connection_s=1) as rig:
        others = server_ends(rig)
        with closing(Wire(rig, TINY)) as wire:
            wait_for(lambda: server_ends(rig) == others + 1)
            for _ in range(3):
                wire.send(request_ + b"Host: x\r\n\r\n")
            wait_for(lambda: server_ends(rig) == others)


def test_a_websocket_that_is_not_read() -> None:
    with make_slow_rig(stall_s=0.5) as rig:
        others = server_ends(rig)
        raw = socket.socket()
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, TINY)
        raw.connect(("127.0.0.1", int(rig.url.rpartition(":")[2])))
        url = rig.url.replace("http", "ws") + "/v1/stream"
        with connect(url, sock=raw, max_queue=1, ping_interval=None, close_timeout=0.1) as client:
            fields = {"prompt": "x", "max_tokens": 450, "logprobs": 5, "ignore_eos": True}
            for i in range(4):
                body = {"type": "create", "id": str(i), "endpoint": "completions", "body": fields}
                client.send(json.dumps(body))
            rig.wait(lambda load: load.running > 0)
            wait_for(lambda: are_cut(rig, others))
        rig.wait_idle()


def test_memory_stays_flat() -> None:
    process = psutil.Process()
    with make_slow_rig(stall_s=0.5, stream_buffer=64) as rig:
        sizes = []
        others = server_ends(rig)
        for _ in range(6):
            with ExitStack() as stack:
                for _ in range(MANY):
                    stack.enter_context(ask(rig))
                wait_for(lambda: are_cut(rig, others))
                sizes.append(process.memory_info().rss)
            rig.wait_idle()
        assert sizes[-1] < sizes[1] + (20 << 20), sizes
