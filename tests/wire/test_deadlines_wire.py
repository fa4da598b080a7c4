"""One deadline per request, from HTTP arrival, over queue, prefill and decode."""

import json
from typing import Any

import pytest
from server_rig import Rig, make_rig

BODY: dict[str, Any] = {"prompt": "x", "max_tokens": 400, "ignore_eos": True}
ENDLESS: dict[str, Any] = {"prompt": "x", "max_tokens": 400}  # might end any time, but here never does


def busy(rig: Rig) -> Any:
    """A stream that holds the only seat."""
    return rig.http.stream("POST", "/v1/completions", json={**BODY, "stream": True})


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("how", ["body", "header"])
def test_expired_in_the_queue_is_504_and_costs_nothing(how: str, stream: bool) -> None:
    with make_rig(pace=0.02, engine={"max_sequences": 1}) as rig, busy(rig):
        before = rig.wait(lambda load: load.running == 1)
        body = {"prompt": "y", "max_tokens": 1, "stream": stream} | ({"timeout": 0.3} if how == "body" else {})
        headers = {"X-Request-Timeout": "0.3"} if how == "header" else {}
        answer = rig.http.post("/v1/completions", json=body, headers=headers)
        assert answer.status_code == 504
        assert answer.json()["error"]["code"] == "deadline_exceeded"
        assert "queue" in answer.json()["error"]["message"]
        after = rig.load()
        # one token a step for the holder, and nothing else
        assert after.computed_tokens - before.computed_tokens == after.steps - before.steps


def test_the_servers_own_limit_ends_a_stream_with_an_error_event() -> None:
    with make_rig(pace=0.02, promise={"total_s": 1.0}) as rig:
        with rig.http.stream("POST", "/v1/completions", json={**ENDLESS, "stream": True, "timeout": 100}) as answer:
            assert answer.status_code == 200
            events = [line.removeprefix("data: ") for line in answer.iter_lines() if line]
        assert events[-1] == "[DONE]"
        assert json.loads(events[-2])["error"]["code"] == "deadline_exceeded"
        assert 2 < len(events) < 100
        rig.wait_idle()
        whole = rig.http.post("/v1/completions", json=ENDLESS)
        assert whole.status_code == 504
        rig.wait_idle()


def test_a_deadline_that_no_waiting_can_mend_is_refused_for_good() -> None:
    with make_rig(pace=0.02) as rig:
        for _ in range(3):  # learns what a step takes
            rig.http.post("/v1/completions", json={**BODY, "max_tokens": 30})
        refused = rig.http.post("/v1/completions", json={**BODY, "timeout": 1.0})  # 400 tokens of 20 ms each
        assert refused.status_code == 400
        assert refused.json()["error"]["code"] == "promise_impossible"
        assert refused.headers["x-should-retry"] == "false"
        cut = rig.http.post("/v1/completions", json={**BODY, "timeout": 1.0, "on_timeout": "truncate"})
        assert cut.status_code == 200
        assert cut.json()["choices"][0]["finish_reason"] == "length"
        assert 1 <= cut.json()["usage"]["completion_tokens"] < 60
        rig.wait_idle()


def test_a_request_that_is_in_time_never_notices() -> None:
    with make_rig(promise={"total_s": 60.0, "queue_s": 30.0}) as rig:
        free = rig.http.post("/v1/completions", json={**BODY, "seed": 1}).json()["choices"]
        timed = rig.http.post(
            "/v1/completions", json={**BODY, "seed": 1, "timeout": 50}, headers={"X-Request-Timeout": "40"}
        )
        assert timed.json()["choices"] == free


def test_the_longest_wait_in_the_queue_is_429_with_a_time_to_come_back() -> None:
    with make_rig(pace=0.02, engine={"max_sequences": 1}, promise={"queue_s": 1.0}) as rig, busy(rig):
        rig.wait(lambda load: load.running == 1)
        refused = rig.http.post("/v1/completions", json={"prompt": "y", "max_tokens": 1})
        assert refused.status_code == 429
        assert int(refused.headers["retry-after"]) >= 1
        assert "queue_s" in refused.json()["error"]["message"]


@pytest.mark.parametrize("value", [0, -1, 1e9, "soon", True, None])
def test_timeouts_that_make_no_sense(value: Any) -> None:
    with make_rig() as rig:
        answer = rig.http.post("/v1/completions", json={"prompt": "x", "max_tokens": 1, "timeout": value})
        assert answer.status_code == (200 if value is None else 400)
        if value is not None:
            assert answer.json()["error"]["param"] == "timeout"
            header = rig.http.post(
                "/v1/completions", json={"prompt": "x", "max_tokens": 1}, headers={"X-Request-Timeout": f"{value}"}
            )
            assert header.status_code == 400
            assert header.json()["error"]["param"] == "X-Request-Timeout"
