"""A client that goes away is cancelled in every phase, and leaves nothing behind."""

import json
import socket
from typing import Any

import pytest
from server_rig import Rig, make_rig


def send(
    rig: Rig, *, stream: bool, prompt: str = "x", max_tokens: int = 400, receive_buffer: int | None = None
) -> socket.socket:
    """A request whose answer nobody has read yet."""
    body: dict[str, Any] = {"prompt": prompt, "stream": stream, "max_tokens": max_tokens, "logprobs": 5}
    data = json.dumps(body).encode()
    host, port = rig.url.removeprefix("http://").split(":")
    connection = socket.socket()
    if receive_buffer is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    connection.connect((host, int(port)))
    head = f"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(data)}\r\n\r\n"
    connection.sendall(head.encode() + data)
    return connection


@pytest.mark.parametrize("stream", [False, True])
def test_in_decode(stream: bool) -> None:
    with make_rig(pace=0.02) as rig:
        connection = send(rig, stream=stream)
        running = rig.wait(lambda load: load.running == 1 and load.steps > 3)
        connection.close()
        assert rig.wait_idle().steps - running.steps < 20


@pytest.mark.parametrize("stream", [False, True])
def test_in_prefill(stream: bool) -> None:
    with make_rig(pace=0.1, engine={"max_step_tokens": 16}) as rig:
        connection = send(rig, stream=stream, prompt="x" * 300, max_tokens=5)
        rig.wait(lambda load: load.running == 1 and 0 < load.waiting_tokens < 290)
        connection.close()
        assert rig.wait_idle().computed_tokens < 200


@pytest.mark.parametrize("stream", [False, True])
def test_queued(stream: bool) -> None:
    with make_rig(pace=0.02, engine={"max_sequences": 1}) as rig:
        first = send(rig, stream=True)
        rig.wait(lambda load: load.running == 1)
        second = send(rig, stream=stream)
        rig.wait(lambda load: load.waiting == 1)
        second.close()
        rig.wait(lambda load: load.waiting == 0 and load.running == 1)
        first.close()
        rig.wait_idle()


def test_a_storm_leaves_no_residue() -> None:
    with make_rig(pace=0.002) as rig:
        for _ in range(10):
            connections = [send(rig, stream=i % 2 == 0, prompt="y" * (i + 1)) for i in range(20)]
            for connection in connections:
                connection.close()
        rig.wait_idle()
        assert rig.openai.completions.create(model="tiny", prompt="x", max_tokens=3).choices[0].text


def test_cancels_once_and_only_its_own() -> None:
    with make_rig(pace=0.005) as rig:
        alone = rig.openai.completions.create(model="tiny", prompt="n", max_tokens=100, temperature=0).choices[0].text
        stream = rig.openai.completions.create(model="tiny", prompt="n", max_tokens=100, temperature=0, stream=True)
        neighbours = [send(rig, stream=True) for _ in range(5)]
        rig.wait(lambda load: load.running == 6)
        for neighbour in neighbours:
            neighbour.close()
        assert "".join(chunk.choices[0].text for chunk in stream) == alone
        rig.wait_idle()


def test_a_slow_reader_loses_its_stream_alone() -> None:
    with make_rig(server={"stream_buffer": 16}, send_buffer=4096, pace=0.002) as rig:
        # Nobody reads this one: the socket's buffers fill, then the stream's. logprobs make for large events.
        connection = send(rig, stream=True, max_tokens=500, receive_buffer=4096)
        with connection:
            rig.wait(lambda load: load.running == 1)
            rig.wait(lambda load: load.running == 0)
            assert rig.load().computed_tokens < 450
            other = rig.openai.completions.create(model="tiny", prompt="x", max_tokens=3)
            assert other.choices[0].finish_reason == "length"
        rig.wait_idle()
