"""The engine is killed, crashes or hangs: every open stream goes on with the very tokens it would have had."""

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from process_rig import Background, Server, serving

DEATHS = [signal.SIGKILL, pytest.param(signal.SIGSEGV, marks=pytest.mark.long), signal.SIGSTOP]
HANG: dict[str, Any] = {"server": {"hang_s": 0.5}}


def wait_restarts(server: Server, count: int, seconds: float = 60.0) -> None:
    """Until so many engines have taken over."""
    end = time.monotonic() + seconds
    while server.metric("headway_engine_restarts_total") < count or server.metric("headway_ready") < 1:
        assert time.monotonic() < end, "no new engine"
        time.sleep(0.02)


def text_of(events: list[str]) -> str:
    assert events[-1] == "[DONE]", events
    parts = [json.loads(event) for event in events[:-1]]
    assert not any("error" in part for part in parts), events[-2]
    return "".join(part["choices"][0]["text"] for part in parts if part["choices"])


@pytest.mark.parametrize("death", DEATHS)
def test_streams_go_on_with_the_same_tokens(death: signal.Signals) -> None:
    form = {"structured_outputs": {"regex": "[a-z]{80}"}, "temperature": 1, "seed": 4}
    greedy, drawn = {"temperature": 0, "ignore_eos": True}, {"temperature": 1, "seed": 3, "ignore_eos": True}
    with serving(step_s=0.01, settings=HANG) as server:
        bodies: list[dict[str, Any]] = [{"prompt": "hi", "max_tokens": 80, **asked} for asked in (greedy, drawn, form)]
        undisturbed = [server.http.post("/v1/completions", json=body).json()["choices"][0]["text"] for body in bodies]
        streams = [Background(server, **body) for body in bodies]
        server.signal_engine(death)
        time.sleep(0.1)
        late = Background(server, max_tokens=5, wait=False)  # comes while there is no engine
        got = [text_of(stream.result(90)) for stream in streams]
        assert got == undisturbed
        text_of(late.result(90))
        wait_restarts(server, 1)
        assert server.process.poll() is None
        assert server.metric('headway_engine_breaker{state="closed"}') == 1


@pytest.mark.long  # the short storm does it too
def test_it_may_die_again_and_again() -> None:
    with serving(step_s=0.01) as server:
        body = {"prompt": "again", "max_tokens": 300, "ignore_eos": True, "temperature": 1, "seed": 1}
        undisturbed = server.http.post("/v1/completions", json=body).json()["choices"][0]["text"]
        stream = Background(server, **body)
        for count in range(1, 4):
            server.signal_engine(signal.SIGKILL)
            wait_restarts(server, count)
            time.sleep(0.2)  # it gets on a little
        assert text_of(stream.result(90)) == undisturbed


def test_health_says_so_while_it_is_away() -> None:
    with serving(step_s=0.01) as server:
        server.signal_engine(signal.SIGKILL)
        answers = []
        end = time.monotonic() + 60
        while server.metric("headway_engine_restarts_total") < 1:
            assert time.monotonic() < end
            answers.append(server.http.get("/health/ready"))
            time.sleep(0.01)
        away = [a.json()["reasons"][0] for a in answers if a.status_code == 503]
        assert away and all("the engine is being restarted (killed by SIGKILL)" in reason for reason in away)
        assert server.http.get("/health/live").status_code == 200


def test_a_deadline_holds_while_there_is_no_engine() -> None:
    with serving(step_s=0.01, settings={"server": {"hang_s": 30}}) as server:
        running = Background(server, max_tokens=400, timeout=4.0, ignore_eos=True)
        server.signal_engine(signal.SIGSTOP)
        time.sleep(4.2)
        server.signal_engine(signal.SIGKILL)
        events = running.result(90)
        assert json.loads(events[-2])["error"]["code"] == "deadline_exceeded"


def test_changed_settings_outlive_it() -> None:
    with serving(step_s=0.0, settings={"server": {"admin_key": "k"}}) as server:
        admin = httpx.Client(base_url=server.url, headers={"Authorization": "Bearer k"}, timeout=20)
        with admin:
            assert admin.patch("/admin/settings", json={"queue": {"max_requests": 77}}).status_code == 200
            server.signal_engine(signal.SIGKILL)
            wait_restarts(server, 1)
            assert admin.get("/admin/settings").json()["queue"]["max_requests"] == 77
            assert admin.patch("/admin/settings", json={"queue": {"max_tokens": 7777}}).status_code == 200
            settings = admin.get("/admin/settings").json()["queue"]
            assert (settings["max_requests"], settings["max_tokens"]) == (77, 7777)


def test_a_worker_that_dies_takes_its_own_streams_along_and_no_others() -> None:
    with serving(step_s=0.02, workers=2) as server:
        streams = [Background(server, max_tokens=150, temperature=0, ignore_eos=True) for _ in range(8)]
        pids = server.pids("fake_api")
        os.kill(pids[0], signal.SIGKILL)
        results = [stream.result(90) for stream in streams]
        cut = [stream.cut for stream in streams]
        assert 0 < sum(cut) < 8 or all(not c for c in cut)  # the kernel shares connections out as it likes
        whole = {text_of(result) for result, c in zip(results, cut, strict=True) if not c}
        assert len(whole) <= 1
        end = time.monotonic() + 60
        while len(server.pids("fake_api")) < 2 or server.http.get("/health/ready").status_code != 200:
            assert time.monotonic() < end
            time.sleep(0.02)
        while server.metric("headway_kv_blocks_free") < server.metric("headway_kv_blocks"):
            assert time.monotonic() < end  # those of the dead worker's streams
            time.sleep(0.02)


def test_no_engine_at_all_opens_the_breaker(tmp_path: Path) -> None:
    """It dies at each start: whoever waits is told, nobody waits for nothing, and it closes once one lives."""
    broken = tmp_path / "broken"
    with serving(step_s=0.01, broken=broken) as server:
        running = Background(server, max_tokens=400, ignore_eos=True)
        broken.touch()
        server.signal_engine(signal.SIGKILL)
        events = running.result(90)
        error = json.loads(events[-2])["error"]
        assert error["code"] == "engine_unavailable", events[-2]
        refused = server.post()
        assert refused.status_code == 503 and float(refused.headers["retry-after"]) >= 1
        assert server.metric('headway_engine_breaker{state="open"}') == 1
        broken.unlink()
        end = time.monotonic() + 90
        while (answer := server.post()).status_code == 503:
            assert time.monotonic() < end
            time.sleep(0.2)
        assert answer.status_code == 200
        assert server.metric('headway_engine_breaker{state="closed"}') == 1
