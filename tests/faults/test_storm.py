"""32 streams are kept in flight while the engine is killed, crashes and hangs at any moment: every one of them ends
with the text it would have had undisturbed."""

import json
import random
import signal
import statistics
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from process_rig import TEXT, Server, serving
from server_rig import sse

STREAMS = 32
DEATHS = [signal.SIGKILL, signal.SIGSEGV, signal.SIGSTOP]
COMMON = {"prompt": "the same beginning of a prompt that is long enough to be computed in some pieces; " * 4}
BODIES: list[dict[str, Any]] = [
    {"prompt": "short", "max_tokens": 60, "temperature": 0, "ignore_eos": True},
    {"prompt": "drawn", "max_tokens": 90, "temperature": 1, "seed": 5, "ignore_eos": True},
    {"prompt": "narrow", "max_tokens": 40, "temperature": 0.7, "top_p": 0.9, "seed": 6, "presence_penalty": 0.5},
    {"prompt": "form", "max_tokens": 50, "temperature": 1, "seed": 7, "structured_outputs": {"regex": "[a-z]{50}"}},
    {**COMMON, "max_tokens": 30, "temperature": 1, "seed": 8, "ignore_eos": True},
]


@dataclass
class Storm:
    server: Server
    wrong: list[str] = field(default_factory=list)
    ended: int = 0
    over: bool = False
    recoveries: list[float] = field(default_factory=list)

    def undisturbed(self) -> list[str]:
        bodies = [{**body, "stream": False} for body in BODIES]
        answers = [self.server.http.post(TEXT, json=body, timeout=60).json() for body in bodies]
        return [answer["choices"][0]["text"] for answer in answers]

    def read(self, number: int, expected: list[str]) -> None:
        """Streams one after the other, until it is over."""
        with httpx.Client(base_url=self.server.url, timeout=120) as http:
            while not self.over:
                number = (number + 1) % len(BODIES)
                try:
                    events = sse(http.post(TEXT, json={**BODIES[number], "stream": True}).text)
                    text = "".join(json.loads(event)["choices"][0]["text"] for event in events[:-1])
                    if events[-1] != "[DONE]" or text != expected[number]:
                        self.wrong.append(f"{number}: {text!r}")
                except Exception as error:  # it is what this looks for
                    self.wrong.append(f"{number}: {error!r}")
                self.ended += 1

    def kill(self, rng: random.Random, count: int, longest_s: float) -> None:
        for done in range(1, count + 1):
            time.sleep(rng.uniform(0.5, longest_s))
            begin = time.monotonic()
            self.server.signal_engine(rng.choice(DEATHS))
            while self.server.metric("headway_engine_restarts_total") < done or not self.server.metric("headway_ready"):
                assert time.monotonic() < begin + 60, "no new engine"
                time.sleep(0.02)
            self.recoveries.append(time.monotonic() - begin)


@pytest.mark.parametrize(
    ("kills", "longest_s"), [(6, 1.5), pytest.param(200, 5.0, marks=[pytest.mark.long, pytest.mark.timeout(3000)])]
)
def test_every_stream_ends_with_its_own_text(kills: int, longest_s: float, tmp_path: Path) -> None:
    config = tmp_path / "headway.toml"
    config.touch()  # so that the log goes to a file: nobody reads a pipe meanwhile
    with serving(step_s=0.005, config=config) as server:
        storm = Storm(server)
        expected = storm.undisturbed()
        readers = [threading.Thread(target=storm.read, args=(i, expected)) for i in range(STREAMS)]
        for reader in readers:
            reader.start()
        try:
            storm.kill(random.Random(1), kills, longest_s)
        finally:
            storm.over = True
            for reader in readers:
                reader.join(60)
        assert not storm.wrong and storm.ended >= STREAMS
        assert server.metric("headway_engine_breaker_openings_total") == 0
        assert server.metric("headway_engine_restarts_total") >= kills  # a busy machine may make one look hung
        end = time.monotonic() + 10
        while server.metric("headway_kv_blocks_free") < server.metric("headway_kv_blocks"):
            assert time.monotonic() < end, "blocks that nobody holds"
            time.sleep(0.05)
        ranked = sorted(storm.recoveries)
        p50, worst = statistics.median(ranked), ranked[min(len(ranked) - 1, int(0.99 * len(ranked)))]
        print(f"{kills} deaths, {storm.ended} streams; a new engine after {p50:.2f} s (p50), {worst:.2f} s (p99)")
