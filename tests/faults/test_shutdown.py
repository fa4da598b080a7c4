"""SIGTERM under load, also while there is no engine: no client is left without an answer, and the exit code is 0."""

import json
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from process_rig import TEXT, Background, Server, serving

ASKED: dict[str, Any] = {"max_tokens": 60, "ignore_eos": True, "temperature": 1}


def late_answers(server: Server) -> list[httpx.Response]:
    """Of those who come after the signal, until nobody listens any more. (The system may take one more in the
    moment in which listening ends, and resets it.)"""
    answers = []
    while True:
        try:
            answers.append(httpx.post(server.url + TEXT, json={"prompt": "late", "max_tokens": 2}, timeout=20))
        except (httpx.ConnectError, httpx.ReadError):
            return answers
        time.sleep(0.1)


@pytest.mark.parametrize("engine_dies", ["before", "after", "never"])
def test_what_runs_is_finished(engine_dies: str) -> None:
    with serving(step_s=0.02, drain_s=60) as server, ThreadPoolExecutor(8) as pool:
        bodies: list[dict[str, Any]] = [{"prompt": f"number {i}", "seed": i, **ASKED} for i in range(6)]
        undisturbed = [server.http.post(TEXT, json=body).json()["choices"][0]["text"] for body in bodies]
        streams = [Background(server, **body) for body in bodies[:3]]
        whole = [pool.submit(httpx.post, server.url + TEXT, json=body, timeout=90) for body in bodies[3:]]
        time.sleep(0.2)
        if engine_dies == "before":
            server.signal_engine(signal.SIGKILL)
            time.sleep(0.15)
        server.process.send_signal(signal.SIGTERM)
        time.sleep(0.1)
        if engine_dies == "after":
            server.signal_engine(signal.SIGKILL)
        late = pool.submit(late_answers, server)
        got = []
        for stream in streams:
            events = stream.result(90)
            assert events[-1] == "[DONE]", events[-2:]
            parts = [json.loads(event) for event in events[:-1]]
            got.append("".join(part["choices"][0]["text"] for part in parts if part["choices"]))
        got += [answer.result(90).json()["choices"][0]["text"] for answer in whole]
        assert got == undisturbed
        assert server.process.wait(30) == 0
        answers = late.result(30)
        assert answers and all(answer.status_code == 503 for answer in answers)
        assert all(int(answer.headers["retry-after"]) >= 1 for answer in answers)


def test_without_an_engine_to_come_the_drain_ends_with_an_error_event(tmp_path: Any) -> None:
    broken = tmp_path / "broken"
    with serving(step_s=0.02, drain_s=2, broken=broken) as server:
        stream = Background(server, **ASKED)
        broken.touch()
        server.signal_engine(signal.SIGKILL)
        server.process.send_signal(signal.SIGTERM)
        events = stream.result(30)
        assert events[-1] == "[DONE]" and json.loads(events[-2])["error"]["code"] == "shutting_down"
        assert server.process.wait(30) == 0
