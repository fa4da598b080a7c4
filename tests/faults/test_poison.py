"""A request that kills the engine whenever it is computed: it alone fails, and its neighbours do not notice."""

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from math import ceil, log2
from typing import Any

import httpx
from process_rig import Background, Server, serving
from raw_wire import wait_for

POISON = {"prompt": "abc\x01", "max_tokens": 5, "temperature": 0}
GOOD = 16


def answer(server: Server, body: dict[str, Any]) -> str:
    return str(server.http.post("/v1/completions", json=body, timeout=60).json()["choices"][0]["text"])


def test_it_is_convicted_and_the_others_end_equal() -> None:
    bodies: list[dict[str, Any]] = [
        {"prompt": f"number {i}", "max_tokens": 60, "ignore_eos": True, "temperature": i % 2, "seed": i}
        for i in range(GOOD)
    ]
    with serving(step_s=0.01) as server:
        undisturbed = [answer(server, body) for body in bodies]
        streams = [Background(server, **body) for body in bodies]
        refused = server.http.post("/v1/completions", json=POISON, timeout=90)
        assert refused.status_code == 500 and refused.json()["error"]["code"] == "poison_request"
        assert server.metric("headway_engine_restarts_total") <= ceil(log2(GOOD + 1)) + 3
        for stream, text in zip(streams, undisturbed, strict=True):
            events = stream.result(90)
            assert events[-1] == "[DONE]"
            assert "".join(json.loads(e)["choices"][0]["text"] for e in events[:-1]) == text
        restarts = server.metric("headway_engine_restarts_total")
        again = server.http.post("/v1/completions", json=POISON)
        assert again.status_code == 500 and again.json()["error"]["code"] == "poison_request"
        assert server.metric("headway_engine_restarts_total") == restarts  # it was not tried again
        assert answer(server, bodies[1]) == undisturbed[1]
        assert server.metric('headway_engine_breaker{state="closed"}') == 1


def test_it_is_convicted_alone_too() -> None:
    with serving() as server:
        refused = server.http.post("/v1/completions", json=POISON, timeout=90)
        assert refused.status_code == 500 and refused.json()["error"]["code"] == "poison_request"
        assert server.metric('headway_engine_breaker{state="closed"}') == 1
        assert server.post().status_code == 200


@contextmanager
def through(server: Server, worker: int) -> Iterator[httpx.Client]:
    """A connection to this API worker: the others do not take it, for they stand still meanwhile."""
    others = [pid for pid in server.pids("fake_api") if pid != worker]
    for pid in others:
        os.kill(pid, signal.SIGSTOP)
    with httpx.Client(base_url=server.url, timeout=90) as http:
        assert http.get("/health/live").status_code == 200
        for pid in others:
            os.kill(pid, signal.SIGCONT)
        yield http


def test_all_workers_refuse_it_also_those_that_come_later() -> None:
    with serving(workers=2, step_s=0.01) as server:
        first, second = server.pids("fake_api")
        with through(server, first) as one, through(server, second) as other:
            refused = one.post("/v1/completions", json=POISON)
            good = [one.post("/v1/completions", json={**POISON, "prompt": "abc"})]
            engine = server.children()["fake_engine"]
            refused_too = other.post("/v1/completions", json=POISON)
        os.kill(second, signal.SIGKILL)
        wait_for(lambda: len(server.pids("fake_api")) == 2 and second not in server.pids("fake_api"))
        (third,) = set(server.pids("fake_api")) - {first}
        with through(server, third) as new:
            wait_for(lambda: new.get("/health/ready").status_code == 200)
            refused_later = new.post("/v1/completions", json=POISON)
            good.append(new.post("/v1/completions", json={**POISON, "prompt": "abc"}))
        for answer in (refused, refused_too, refused_later):
            assert answer.status_code == 500 and answer.json()["error"]["code"] == "poison_request", answer.text
        assert [answer.status_code for answer in good] == [200, 200]
        assert server.children()["fake_engine"] == engine  # it was not tried again
