"""Nobody reads the log: the server does not mind, and says later how much was lost."""

import fcntl
import json
import logging
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from process_rig import TEXT, Background, serving
from raw_wire import wait_for

from headway.observability.log_queue import LogQueue

Pipe = tuple[int, int]


@pytest.fixture
def full() -> Iterator[Pipe]:
    """A pipe into which not one byte more goes."""
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
    os.set_blocking(writer, False)
    with suppress(BlockingIOError):
        while True:
            os.write(writer, b".")
    os.set_blocking(writer, True)
    yield reader, writer
    os.close(reader)
    os.close(writer)


def test_the_server_goes_on_and_ends_in_good_order(full: Pipe) -> None:
    with serving(step_s=0.01, stderr=full[1]) as server:
        body: dict[str, Any] = {"prompt": "x", "max_tokens": 60, "temperature": 0, "ignore_eos": True}
        undisturbed = server.http.post(TEXT, json=body).json()["choices"][0]["text"]
        stream = Background(server, **body)
        server.signal_engine(signal.SIGKILL)
        events = stream.result(60)
        assert events[-1] == "[DONE]"
        assert "".join(json.loads(event)["choices"][0]["text"] for event in events[:-1]) == undisturbed
        wait_for(lambda: server.http.get("/health/ready").status_code == 200)
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(30) == 0


def test_what_is_dropped_is_counted(full: Pipe) -> None:
    reader, writer = full
    lines = LogQueue(writer, most=10)
    log = logging.Logger("test")
    log.addHandler(lines)
    for number in range(30):
        log.info("line %d", number)
    read = ""
    while "line 9\n" not in read:
        read += os.read(reader, 4096).decode()
    lines.flush()
    log.info("later %s", "on")
    log.info("wrong %d", "on")
    while "TypeError" not in read:
        read += os.read(reader, 4096).decode()
    kept = [int(line.split()[1]) for line in read.lstrip(".").splitlines() if line.startswith("line ")]
    assert kept in (list(range(10)), list(range(11)))  # one may be on its way
    assert f"({30 - len(kept)} lines were dropped, for the log was not read)\nlater on\n" in read
