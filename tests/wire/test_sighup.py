"""SIGHUP and /admin/settings on the real processes, two API workers."""

import json
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import psutil
from process_rig import Background, Server, launch, log_of, serving
from server_rig import make_rig

ADMIN = {"authorization": "Bearer hush-hush"}
START = "[server]\nadmin_key = 'hush-hush'\n"
TOKENS = 300


def until(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def shown(server: Server) -> dict[str, Any]:
    """What one worker, whichever takes the connection, shows."""
    settings: dict[str, Any] = httpx.get(f"{server.url}/admin/settings", headers=ADMIN, timeout=20).json()
    return settings


def workers(server: Server) -> list[psutil.Process]:
    children = psutil.Process(server.process.pid).children()
    return [child for child in children if child.cmdline()[-1] == "fake_api"]


def text_of(events: list[str]) -> str:
    return "".join(json.loads(event)["choices"][0]["text"] for event in events if event != "[DONE]")


def test_a_reload_drops_no_stream(tmp_path: Path) -> None:
    config = tmp_path / "headway.toml"

    def reload(text: str) -> None:
        config.write_text(text)
        server.process.send_signal(signal.SIGHUP)

    def logged(text: str) -> Callable[[], bool]:
        return lambda: text in log_of(config).read_text()

    def in_both(section: str, name: str, value: float) -> Callable[[], bool]:
        return lambda: all(shown(server)[section][name] == value for _ in range(6))

    with make_rig() as rig:
        body = {"prompt": "x", "max_tokens": TOKENS, "temperature": 0}
        alone = rig.http.post("/v1/completions", json=body).json()["choices"][0]["text"]
    config.write_text(START)
    with serving(workers=2, step_s=0.02, config=config) as server:
        running = Background(server, TOKENS, temperature=0)
        server.http.patch("/admin/settings", json={"queue": {"max_requests": 5}}, headers=ADMIN)
        reload(f"{START}[promise]\nitl_ms = 80\n[limits]\nmax_prompts = 1\n")
        until(in_both("promise", "itl_ms", 80.0))
        until(in_both("queue", "max_requests", 1024))  # the file has the last word
        two = {"prompt": ["a", "b"], "max_tokens": 1}
        until(lambda: server.http.post("/v1/completions", json=two).status_code == 400)
        until(logged("promise.itl_ms 50.0 -> 80.0"))

        reload(f"{START}[promise]\nitl_ms = -1\n")
        until(logged("settings not changed: setting promise.itl_ms"))
        reload("[promise")
        until(logged("settings not changed: config file"))
        config.unlink()
        server.process.send_signal(signal.SIGHUP)
        until(logged("no such config file"))
        assert in_both("promise", "itl_ms", 80.0)()

        reload(f"{START}model_name = 'other'\n[promise]\nitl_ms = 90\n")
        until(in_both("promise", "itl_ms", 90.0))
        until(in_both("limits", "max_prompts", 64))
        assert logged("server.model_name needs a restart")()
        assert server.http.get("/v1/models").json()["data"][0]["id"] == "tiny"
        assert "hush" not in log_of(config).read_text()

        events = running.result()
        assert events[-1] == "[DONE]" and text_of(events) == alone
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(20) == 0


def test_a_change_reaches_every_worker(tmp_path: Path) -> None:
    config = tmp_path / "headway.toml"
    config.write_text(START)
    with serving(workers=2, config=config) as server:
        until(lambda: len(workers(server)) == 2)
        one, other = workers(server)
        one.suspend()  # so that the other takes the connection
        url = f"{server.url}/admin/settings"
        answer = httpx.patch(url, json={"queue": {"max_requests": 5}}, headers=ADMIN, timeout=20)
        assert answer.status_code == 200 and answer.json()["queue"]["max_requests"] == 5
        one.resume()
        other.suspend()
        until(lambda: bool(shown(server)["queue"]["max_requests"] == 5))
        other.resume()


def test_hangups_at_start_and_at_the_end_kill_nothing(tmp_path: Path) -> None:
    config = tmp_path / "headway.toml"
    config.write_text(START)
    with launch(workers=2, step_s=0.02, drain_s=20, config=config) as process:
        parent = psutil.Process(process.pid)
        until(lambda: len(parent.children()) == 3)
        config.write_text(f"{START}[queue]\nmax_requests = 5\n")
        for one in (parent, *parent.children()):
            one.send_signal(signal.SIGHUP)
        server = Server(process)
        until(lambda: all(shown(server)["queue"]["max_requests"] == 5 for _ in range(6)))
        running = Background(server, 60)
        for one in parent.children():
            one.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGTERM)
        time.sleep(0.5)  # more than an echo
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGHUP)
        events = running.result()
        assert events[-1] == "[DONE]" and json.loads(events[-2])["choices"][0]["finish_reason"] == "length"
        assert process.wait(20) == 0
        server.http.close()
