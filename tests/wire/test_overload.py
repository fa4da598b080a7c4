"""Refusals: early, with a real status, and with the time to come back."""

import threading
import time
from typing import Any

import openai
import pytest
from server_rig import Rig, make_rig

BODY: dict[str, Any] = {"prompt": "x", "max_tokens": 400, "stream": True}


def assert_retryable(headers: Any) -> None:
    assert 1 <= int(headers["retry-after"]) <= 60
    assert 1 <= int(headers["retry-after-ms"]) <= 60_000


def test_a_full_queue_answers_429_at_once() -> None:
    with make_rig(pace=0.05, engine={"max_sequences": 1}, queue={"max_requests": 1}) as rig:
        with rig.http.stream("POST", "/v1/completions", json=BODY) as running:
            assert running.status_code == 200
            rig.wait(lambda load: load.running == 1)
            queued = threading.Thread(
                target=rig.http.post, args=("/v1/completions",), kwargs={"json": {"prompt": "y", "max_tokens": 1}}
            )
            queued.start()
            rig.wait(lambda load: load.waiting == 1)
            refused = rig.http.post("/v1/completions", json=BODY)
            assert refused.status_code == 429
            assert refused.json()["error"]["code"] == "overloaded"
            assert refused.json()["error"].keys() == {"message", "type", "param", "code"}
            assert_retryable(refused.headers)
            with pytest.raises(openai.RateLimitError):
                rig.openai.completions.create(model="tiny", prompt="x")
        queued.join()
        rig.wait_idle()


def test_a_burst_is_bounded_before_the_first_step() -> None:
    with make_rig(pace=0.05, engine={"max_sequences": 2}, queue={"max_requests": 3}) as rig:
        statuses: list[int] = []

        def post() -> None:
            statuses.append(rig.http.post("/v1/completions", json={"prompt": "x", "max_tokens": 3}).status_code)

        threads = [threading.Thread(target=post) for _ in range(30)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert set(statuses) == {200, 429} and statuses.count(200) >= 5
        rig.wait_idle()


def test_a_prompt_that_does_not_fit_the_token_bound_while_others_wait() -> None:
    with make_rig(pace=0.05, engine={"max_sequences": 1}, queue={"max_tokens": 40}) as rig:
        with rig.http.stream("POST", "/v1/completions", json=BODY):
            rig.wait(lambda load: load.running == 1)
            refused = rig.http.post("/v1/completions", json={"prompt": "x" * 400, "max_tokens": 1})
            assert refused.status_code == 429
            assert_retryable(refused.headers)
        rig.wait_idle()


def test_health_and_refusal_while_loading() -> None:
    loaded = threading.Event()

    def wait_for_test(rig: Rig) -> None:
        loaded.wait(10)

    with make_rig(start_runner=wait_for_test, wait_ready=False) as rig:
        time.sleep(0.3)
        assert rig.http.get("/health/live").status_code == 200
        assert rig.http.get("/health").status_code == 503
        ready = rig.http.get("/health/ready")
        assert ready.status_code == 503 and "loading" in ready.json()["reasons"][0]
        refused = rig.http.post("/v1/completions", json=BODY)
        assert refused.status_code == 503 and refused.json()["error"]["code"] == "engine_unavailable"
        assert_retryable(refused.headers)
        assert rig.http.get("/v1/models").status_code == 200
        loaded.set()
        rig.wait(lambda load: load.ready)
        for path in ("/health/ready", "/health"):
            assert rig.http.get(path).json() == {"ready": True, "reasons": []}


def test_health_tells_of_a_silent_engine(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headway.serving.engine_link.STALE_S", 0.0)
    ready = rig.http.get("/health/ready")
    assert ready.status_code == 503 and "sign of life" in ready.json()["reasons"][0]
    assert rig.http.post("/v1/completions", json=BODY).status_code == 503
