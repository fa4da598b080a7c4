"""Thousands of connections, most of them idle: all are served, and each costs little."""

import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from process_rig import Server, serving

TOKENS = 40
MOST_BYTES = 40_000  # of the API worker's memory for an idle connection


class Watch:
    """Asks for the server's health all the time."""

    def __init__(self, server: Server) -> None:
        self.answers: list[tuple[int, int]] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(server.url,))

    def _run(self, url: str) -> None:
        with httpx.Client(base_url=url, timeout=60) as http:
            while not self._over.wait(0.2):
                self.answers.append((http.get("/health/live").status_code, http.get("/health/ready").status_code))

    def __enter__(self) -> "Watch":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(70)


@pytest.mark.parametrize(
    ("idle", "streams", "step_s"),
    [(300, 60, 0.02), pytest.param(10_000, 2_000, 0.3, marks=[pytest.mark.long, pytest.mark.timeout(600)])],
)
def test_all_are_served(idle: int, streams: int, step_s: float, tmp_path: Path) -> None:
    config = tmp_path / "headway.toml"
    config.touch()  # so that the log goes to a file: nobody reads a pipe meanwhile
    engine = {"max_sequences": 2048, "max_step_tokens": 4096}
    settings: dict[str, Any] = {
        "engine": engine,
        "queue": {"max_requests": 20_000},
        "server": {"idle_connection_s": 600},
    }
    with serving(step_s=step_s, slots=2048, config=config, settings=settings) as server:
        worker = psutil.Process(server.children()["fake_api"])
        server.post()
        begin = worker.memory_info().rss
        command = [sys.executable, str(Path(__file__).parent / "many_clients.py"), server.url.rpartition(":")[2]]
        command += [str(idle), str(streams), str(TOKENS)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as client:
            try:
                assert client.stdin is not None and client.stdout is not None
                assert client.stdout.readline() == "idle\n"
                resting = worker.memory_info().rss
                with Watch(server) as watch:
                    client.stdin.write("\n")
                    client.stdin.flush()
                    told = json.loads(client.stdout.readline())
                running = worker.memory_info().rss
                each, more = (resting - begin) / idle, (running - resting) / streams
                print(f"{told}; idle {each / 1000:.1f} kB each, streams {more / 1000:.1f} kB each")
            finally:
                client.kill()
        assert told["answered"] == told["still_open"] == idle
        assert told["ended"] == streams
        assert told["tokens"] == [TOKENS]
        assert watch.answers and set(watch.answers) == {(200, 200)}
        assert each < MOST_BYTES or idle < 1000  # of few, what the allocator asks for at once weighs more
