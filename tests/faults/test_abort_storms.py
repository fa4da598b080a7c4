"""Clients that break off at any moment, again and again: blocks, tasks, files and memory are what they were."""

import asyncio
import base64
import gc
import json
import random
import re
import socket
import struct
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from server_rig import Rig
from shared_rig import rig_in

CLIENTS = 24  # in a round
SETTLED = 30  # rounds after which memory has found its size
LONG: dict[str, Any] = {"prompt": "x " * 40, "max_tokens": 400, "ignore_eos": True}
BODIES: list[tuple[str, dict[str, Any]]] = [
    ("/v1/completions", LONG),
    ("/v1/completions", {**LONG, "stream": True}),
    ("/v1/completions", {**LONG, "stream": True, "n": 3}),
    ("/v1/completions", {**LONG, "stream": True, "stream_options": {"resumable": True}}),
    ("/v1/completions", {**LONG, "stream": True, "structured_outputs": {"regex": "[a-z]{300}"}}),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}], "max_tokens": 300, "stream": True}),
    ("/v1/responses", {"input": "x", "max_output_tokens": 300, "store": False, "stream": True}),
]


def bytes_of(path: str, body: dict[str, Any]) -> bytes:
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
    return head.encode() + data


def websocket() -> bytes:
    """A handshake, and a masked frame that asks for a stream."""
    key = base64.b64encode(b"0123456789abcdef").decode()
    head = "GET /v1/stream HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    data = json.dumps({"type": "completions", "id": "a", "body": {**LONG, "stream": True}}).encode()
    frame = b"\x81" + bytes([0x80 | 126]) + struct.pack("!H", len(data)) + b"\0\0\0\0" + data
    return f"{head}Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode() + frame


def storm(port: int, rng: random.Random) -> None:
    """All ask, and break off one after the other: in the middle of the request, of the prompt, of the answer; some by a
    reset."""
    open_ones = []
    for _ in range(CLIENTS):
        sent = websocket() if rng.random() < 0.1 else bytes_of(*rng.choice(BODIES))
        if rng.random() < 0.2:
            sent = sent[: rng.randrange(len(sent))]
        connection = socket.create_connection(("127.0.0.1", port), timeout=10)
        connection.sendall(sent)
        open_ones.append(connection)
    rng.shuffle(open_ones)
    for connection in open_ones:
        time.sleep(rng.expovariate(1 / 0.004))
        if rng.random() < 0.3:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()


def held(rig: Rig) -> tuple[float, int, int]:
    """Blocks, tasks that are not done, and open files of this process."""
    text = rig.http.get("/metrics").text
    free, blocks = (
        re.search(rf"^{name} (\S+)$", text, re.MULTILINE) for name in ("headway_kv_blocks_free", "headway_kv_blocks")
    )
    assert free and blocks
    tasks = sum(1 for thing in gc.get_objects() if isinstance(thing, asyncio.Task) and not thing.done())
    return float(blocks[1]) - float(free[1]), tasks, psutil.Process().num_fds()


def settled(rig: Rig, base: tuple[float, int, int]) -> None:
    """Until as little is held as at the beginning."""
    end = time.monotonic() + 30
    while True:
        found = held(rig)
        if all(now <= then for now, then in zip(found, base, strict=True)):
            return
        assert time.monotonic() < end, f"blocks, tasks, files: {found}, at the beginning {base}"
        time.sleep(0.1)


@pytest.mark.parametrize("rounds", [12, pytest.param(300, marks=[pytest.mark.long, pytest.mark.timeout(1800)])])
def test_nothing_is_left_behind(rounds: int, tmp_path: Path) -> None:
    rng, memory = random.Random(rounds), list[int]()
    server, promise = {"head_s": 1.0, "body_s": 1.0}, {"on_stream_drop": "cancel"}
    with rig_in(tmp_path, server=server, promise=promise) as rig:
        rig.pace[0] = 0.002
        port = int(rig.url.rpartition(":")[2])
        answer = {"prompt": "hi", "max_tokens": 30, "ignore_eos": True, "seed": 1}
        undisturbed = rig.http.post("/v1/completions", json=answer).json()["choices"][0]["text"]
        storm(port, rng)  # what is made once, at its first use
        time.sleep(1.5)
        base = held(rig)
        for _ in range(rounds):
            storm(port, rng)
            memory.append(psutil.Process().memory_info().rss)
        settled(rig, base)
        assert rig.http.post("/v1/completions", json=answer).json()["choices"][0]["text"] == undisturbed
        if rounds > SETTLED:
            mega = [round(memory[i] / 1e6) for i in (SETTLED, -1)]
            print(f"{rounds} rounds: {mega[0]} MB after {SETTLED}, {mega[1]} at the end; held {base}")
            assert memory[-1] <= 1.05 * memory[SETTLED] + 20e6
