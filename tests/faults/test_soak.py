"""Mixed load with everything that goes wrong, for long: nothing leaks, no token is wrong, nobody waits for ever, and
the health endpoints tell the truth all the time."""

import contextlib
import json
import os
import random
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from process_rig import TEXT, Server, serving
from server_rig import sse

CLIENTS = 12
GOOD: list[dict[str, Any]] = [
    {"prompt": "short", "max_tokens": 30, "temperature": 0, "ignore_eos": True},
    {"prompt": "drawn", "max_tokens": 60, "temperature": 1, "seed": 5, "ignore_eos": True},
    {"prompt": "two", "max_tokens": 20, "temperature": 1, "seed": 9, "n": 2},
    {"prompt": "form", "max_tokens": 40, "temperature": 1, "seed": 7, "structured_outputs": {"regex": "[a-z]{40}"}},
    {
        "prompt": "a long prompt in some pieces " * 12,
        "max_tokens": 20,
        "temperature": 0.8,
        "seed": 8,
        "ignore_eos": True,
    },
]
REFUSED: list[tuple[str, int]] = [
    ('{"prompt": "x", "max_tokens": ', 400),
    ('{"prompt": "x", "max_tokens": "many"}', 400),
    ('{"prompt": "x", "n": 1e9}', 400),
    ('{"prompt": "' + "x" * 9_000_000 + '"}', 413),
]


@dataclass
class Soak:
    server: Server
    expected: list[list[str]] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    done: Counter[str] = field(default_factory=Counter)
    over: threading.Event = field(default_factory=threading.Event)

    def ask(self, http: httpx.Client, rng: random.Random) -> None:
        """One answer, which must be the undisturbed one."""
        number = rng.randrange(len(GOOD))
        stream = rng.random() < 0.6
        answer = http.post(TEXT, json={**GOOD[number], "stream": stream})
        if answer.status_code != 200:
            raise ValueError(f"{answer.status_code}: {answer.text[:300]}")
        texts = ["" for _ in self.expected[number]]
        parts = [json.loads(e) for e in sse(answer.text) if e != "[DONE]"] if stream else [answer.json()]
        for choice in [choice for part in parts for choice in part["choices"]]:
            texts[choice["index"]] += choice["text"]
        if texts != self.expected[number]:
            raise ValueError(f"{GOOD[number]}: {texts}")

    def resume(self, http: httpx.Client, rng: random.Random) -> None:
        """A stream that is dropped in the middle, and read to its end by its id."""
        body = {**GOOD[1], "stream": True, "stream_options": {"resumable": True}}
        last, text = "", ""
        with http.stream("POST", TEXT, json=body) as answer:
            for count, line in enumerate(answer.iter_lines()):
                if line.startswith("id: "):
                    last = line[4:]
                elif line.startswith("data: ") and last:
                    text += _text(line)
                if count > rng.randrange(4, 60) and last and not line:
                    break
        stream, _, number = last.rpartition("-")
        rest = http.get(f"/v1/streams/{stream}", params={"after": int(number)})
        if rest.status_code != 200:
            raise ValueError(f"{rest.status_code}: {rest.text[:300]}")
        text += "".join(_text(line) for line in rest.text.splitlines() if line.startswith("data: "))
        if text != self.expected[1][0]:
            raise ValueError(f"resumed: {text!r}")

    def drop(self, http: httpx.Client, rng: random.Random) -> None:
        """A reader who goes away in the middle."""
        with http.stream("POST", TEXT, json={**GOOD[1], "max_tokens": 200, "stream": True}) as answer:
            for count, _ in enumerate(answer.iter_lines()):
                if count > rng.randrange(40):
                    return

    def dawdle(self, http: httpx.Client, rng: random.Random) -> None:
        """A reader who takes nothing for a while, with half a request sent before; then it goes away."""
        body = json.dumps({**GOOD[1], "max_tokens": 300, "stream": True}).encode()
        head = (
            f"POST {TEXT} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        with socket.create_connection((http.base_url.host, http.base_url.port), timeout=10) as connection:
            connection.sendall(head.encode() + body[: rng.randrange(len(body) + 1)])
            self.over.wait(rng.uniform(0, 0.5))

    def refuse(self, http: httpx.Client, rng: random.Random) -> None:
        """What must be refused."""
        body, status = rng.choice(REFUSED)
        with contextlib.suppress(httpx.WriteError, httpx.ReadError):  # a body too long is not read to its end
            answer = http.post(TEXT, content=body, headers={"Content-Type": "application/json"})
            if answer.status_code != status:
                raise ValueError(f"{answer.status_code} for {body[:60]}")

    def live(self, seed: int) -> None:
        rng = random.Random(seed)
        doings: list[Callable[[httpx.Client, random.Random], None]] = [self.ask] * 6 + [self.resume, self.drop]
        doings += [self.dawdle, self.refuse]
        with httpx.Client(base_url=self.server.url, timeout=120) as http:
            while not self.over.is_set():
                doing = rng.choice(doings)
                try:
                    doing(http, rng)
                except Exception as error:  # it is what this looks for
                    self.wrong.append(f"{doing.__name__}: {error!r}")
                self.done[doing.__name__] += 1

    def watch(self) -> None:
        """Health: always alive; ready exactly when it says no reason against it."""
        with httpx.Client(base_url=self.server.url, timeout=60) as http:
            while not self.over.is_set():
                try:
                    alive, ready = http.get("/health/live"), http.get("/health/ready")
                    told = ready.json()
                    if alive.status_code != 200 or (ready.status_code == 200) == bool(told.get("reasons")):
                        self.wrong.append(f"health: {alive.status_code}, {ready.status_code}, {told}")
                    self.done["ready" if ready.status_code == 200 else "not ready"] += 1
                except Exception as error:
                    self.wrong.append(f"health: {error!r}")
                self.over.wait(0.1)


def _text(line: str) -> str:
    data = line[6:]
    choices = [] if data == "[DONE]" else json.loads(data)["choices"]
    return "".join(choice["text"] for choice in choices)


def settle(server: Server) -> None:
    """Until nothing is held by anybody."""
    end = time.monotonic() + 30
    while (free := server.metric("headway_kv_blocks_free")) < (blocks := server.metric("headway_kv_blocks")):
        assert time.monotonic() < end, f"{blocks - free} blocks that nobody holds"
        time.sleep(0.1)


def api(server: Server) -> psutil.Process:
    return psutil.Process(server.children()["fake_api"])


@pytest.mark.parametrize("seconds", [6.0, pytest.param(1800.0, marks=[pytest.mark.long, pytest.mark.timeout(2400)])])
def test_nothing_leaks_and_no_token_is_wrong(seconds: float, tmp_path: Path) -> None:
    config = tmp_path / "headway.toml"
    config.touch()  # so that the log goes to a file: nobody reads a pipe meanwhile
    settings = {"server": {"stall_s": 2.0, "head_s": 5.0, "body_s": 5.0}}
    with serving(step_s=0.002, config=config, settings=settings) as server:
        soak = Soak(server)
        for body in GOOD:
            choices = server.http.post(TEXT, json=body, timeout=60).json()["choices"]
            soak.expected.append([choice["text"] for choice in choices])
        threads = [threading.Thread(target=soak.live, args=(seed,)) for seed in range(CLIENTS)]
        threads.append(threading.Thread(target=soak.watch))
        for thread in threads:
            thread.start()
        rng, begin, kills, memory = random.Random(0), time.monotonic(), 0, list[int]()
        try:
            while (passed := time.monotonic() - begin) < seconds:
                time.sleep(min(rng.uniform(2, 20), seconds / 3))
                os.kill(server.children()["fake_engine"], rng.choice([signal.SIGKILL, signal.SIGSEGV]))
                kills += 1
                memory += [api(server).memory_info().rss] if passed > 0.2 * seconds else []
                end = time.monotonic() + 60
                while server.metric("headway_engine_restarts_total") < kills:
                    assert time.monotonic() < end, "no new engine"
                    time.sleep(0.05)
        finally:
            soak.over.set()
            for thread in threads:
                thread.join(150)
        assert not any(thread.is_alive() for thread in threads), "a request that never ends"
        assert not soak.wrong, soak.wrong[:5]
        assert soak.done["ready"] and soak.done["ask"]
        settle(server)
        server.http.close()
        server.http = httpx.Client(base_url=server.url, timeout=20)
        time.sleep(5.5 if seconds > 60 else 0)  # half requests have `head_s` and `body_s`
        left = [c for c in api(server).net_connections() if c.status == psutil.CONN_ESTABLISHED]
        assert seconds < 60 or len(left) <= 2, left
        if seconds > 60:
            assert memory[-1] <= 1.05 * memory[0] + 20e6, memory
        mega = [round(value / 1e6) for value in memory]
        print(f"{seconds:.0f} s: {dict(soak.done)}, {kills} kills, API worker MB {mega[:1]} to {mega[-1:]}")
