"""The real processes: parent, engine (fake runner) and API workers."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
from process_rig import HERE, SOURCE, TEXT, Background, is_running, launch, serving


def test_serves_with_two_workers_and_drains_on_sigterm() -> None:
    with serving(workers=2, step_s=0.02) as server:
        assert all(
            httpx.post(server.url + TEXT, json={"prompt": "x", "max_tokens": 2}).status_code == 200 for _ in range(8)
        )
        metrics = server.http.get("/metrics").text
        assert 'headway_requests_total{outcome="length"} 8.0' in metrics  # whichever worker answers
        running = Background(server, max_tokens=60)
        server.process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        refused = server.post()
        assert refused.status_code == 503 and refused.json()["error"]["code"] == "shutting_down"
        assert int(refused.headers["retry-after"]) >= 1
        events = running.result()
        assert events[-1] == "[DONE]" and json.loads(events[-2])["choices"][0]["finish_reason"] == "length"
        assert server.process.wait(10) == 0


def test_what_outlasts_the_drain_gets_an_error_event() -> None:
    with serving(drain_s=0.3, step_s=0.05) as server:
        running = Background(server, max_tokens=400)
        server.process.send_signal(signal.SIGINT)
        events = running.result()
        assert events[-1] == "[DONE]" and json.loads(events[-2])["error"]["code"] == "shutting_down"
        assert server.process.wait(10) == 0


def test_a_second_signal_ends_it_at_once() -> None:
    with serving(drain_s=30, step_s=0.05) as server:
        running = Background(server, max_tokens=400)
        server.process.send_signal(signal.SIGTERM)
        server.process.send_signal(signal.SIGTERM)  # an echo of the first
        time.sleep(0.5)
        assert server.process.poll() is None
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(3) != 0
        assert "[DONE]" not in running.result() and running.cut


def test_an_engine_that_cannot_start_ends_the_server_with_1(tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.touch()
    with launch(broken=broken) as process:
        assert process.wait(30) == 1
        assert process.stderr is not None
        said = process.stderr.read()
        assert "the model is broken" in said and "the engine has ended (exit code 1)" in said
        assert "Traceback" not in said


def test_children_do_not_outlive_the_parent() -> None:
    with serving() as server:
        children = server.children()
        assert children.keys() == {"fake_engine", "fake_api"}
        server.process.kill()
        end = time.monotonic() + 5
        while any(is_running(child) for child in children.values()):
            assert time.monotonic() < end
            time.sleep(0.02)


def test_a_port_in_use_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        path = os.pathsep.join([str(SOURCE), str(HERE)])
        command = [sys.executable, str(HERE / "fake_server.py"), str(port), "1", "1"]
        result = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path})
        assert result.returncode == 1
        assert str(port) in result.stderr and "Traceback" not in result.stderr


def test_the_parent_stays_light() -> None:
    heavy = "fastapi starlette uvicorn numpy tokenizers zmq jinja2"
    code = f"import sys, headway.serving.supervisor; print([m for m in '{heavy}'.split() if m in sys.modules])"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(SOURCE)}
    )
    assert result.stdout.strip() == "[]", result.stdout + result.stderr
