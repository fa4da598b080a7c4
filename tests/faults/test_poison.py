"""A request that kills the engine whenever it is computed: it alone fails, and its neighbours do not notice."""

import json
from math import ceil, log2
from typing import Any

from process_rig import Background, Server, serving

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
