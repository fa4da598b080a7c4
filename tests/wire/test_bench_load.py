"""`headway bench load` against a scripted server and against Headway itself. Counts and orders only, never times."""

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from server_rig import make_rig
from typer.testing import CliRunner

from headway.bench.load import Outcome, measure
from headway.bench.load_options import Options
from headway.bench.load_stats import Promise, Summary
from headway.cli.main import app
from headway.core.errors import EngineUnavailable

Answer = list[bytes | float | None]  # bytes to send, seconds to wait, or None: cut the connection
Script = Callable[[int, dict[str, Any]], Answer]  # of the n-th POST

STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
TOKEN = b'data: {"choices":[{"index":0,"delta":{"content":"x"},"finish_reason":null}]}\n\n'
ROLE = b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}\n\n'
FINISH = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"length"}]}\n\n'
DONE = b"data: [DONE]\n\n"


def framed(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def usage(tokens: int) -> bytes:
    return b'data: {"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":%d}}\n\n' % tokens


def stream(tokens: int, *, first: float = 0.0, gap: float = 0.0) -> Answer:
    """A whole answer: the first token after `first` seconds, then one every `gap` seconds."""
    parts: Answer = [STREAM_HEAD, framed(ROLE), first]
    for _ in range(tokens):
        parts += [framed(TOKEN), gap]
    return [*parts, framed(FINISH + usage(tokens)), framed(DONE) + b"0\r\n\r\n"]


def plain(status: int, body: bytes, *headers: bytes) -> Answer:
    lines = [b"HTTP/1.1 %d X" % status, b"content-type: application/json", b"content-length: %d" % len(body), *headers]
    return [b"\r\n".join([*lines, b"", body])]


class Scripted:
    """Keeps connections open, counts them, and answers every POST as the script says."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self.bodies: list[dict[str, Any]] = []
        self.heads: list[str] = []
        self.connections = 0
        self.live = 0
        self.most_live = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while await self._one(reader, writer):
                pass
        except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        if head.startswith("GET"):
            writer.write(plain(200, b'{"data":[{"id":"tiny"}]}')[0])  # type: ignore[arg-type]
            return True
        size = int(head.lower().split("content-length:")[1].split()[0])
        self.heads.append(head)
        self.bodies.append(json.loads(await reader.readexactly(size)))
        self.live += 1
        self.most_live = max(self.live, self.most_live)
        try:
            for part in self._script(len(self.bodies) - 1, self.bodies[-1]):
                if part is None:
                    return False
                if isinstance(part, bytes):
                    writer.write(part)
                elif part:
                    await asyncio.sleep(part)
        finally:
            self.live -= 1
        return True


@contextmanager
def scripted(script: Script) -> Iterator[tuple[Scripted, str]]:
    """A server in a thread, and its url."""
    server, url, ready = Scripted(script), [""], threading.Event()
    loop = asyncio.new_event_loop()

    async def start() -> None:
        listener = await asyncio.start_server(server.serve, "127.0.0.1", 0)
        url[0] = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
        ready.set()
        async with listener:
            try:
                await asyncio.Event().wait()
            finally:
                for task in asyncio.all_tasks(loop) - {asyncio.current_task()}:
                    task.cancel()

    main = loop.create_task(start())

    def run() -> None:
        with pytest.raises(asyncio.CancelledError):
            loop.run_until_complete(main)
        loop.run_until_complete(asyncio.sleep(0.01))
        loop.close()

    thread = threading.Thread(target=run)
    thread.start()
    assert ready.wait(5)
    try:
        yield server, url[0]
    finally:
        loop.call_soon_threadsafe(main.cancel)
        thread.join(5)


def load(script: Script, **options: Any) -> tuple[Summary, Scripted]:
    with scripted(script) as (server, url):
        return measure(Options(url=url, output_tokens="5", **options)).summary, server


def consistent(s: Summary) -> None:
    assert s.ok + s.refused + s.failed + s.cut_off == s.requests


def test_open_loop_sends_on_time_whatever_the_server_does() -> None:
    s, server = load(lambda n, body: stream(5, first=0.1), rate=400, requests=30, promise=Promise(1e5, 1e5))
    assert (s.requests, s.ok, s.good, s.failed) == (30, 30, 30, 0)
    assert server.most_live > 10  # nobody waited for an answer
    assert s.output_tokens is not None
    assert (s.output_tokens.p50, s.prompt_tokens and s.prompt_tokens.p50) == (5, 9)
    assert s.ttft_ms is not None
    assert s.ttft_ms.p50 >= 100  # the role chunk came at once
    assert s.gap_ms is not None
    assert s.gap_ms.count == 30 * 4
    assert server.bodies[0]["model"] == "tiny"


def test_a_full_pool_does_not_hide_the_wait() -> None:
    s, server = load(lambda n, body: stream(2, first=0.02), rate=1000, requests=10, connections=1)
    assert (server.most_live, server.connections, s.ok) == (1, 1, 10)
    assert s.ttft_ms is not None
    assert s.send_lag_ms is not None
    assert s.ttft_ms.max > 5 * 20  # from when it was due
    assert any("sent late" in warning for warning in s.warnings)


def test_closed_loop_reuses_its_connections() -> None:
    s, server = load(lambda n, body: stream(5, first=0.01), clients=3, requests=20)
    assert (s.requests, s.ok, server.most_live) == (20, 20, 3)
    assert server.connections <= 4  # the probe's too


def test_warm_up_is_not_measured() -> None:
    s, server = load(lambda n, body: stream(2, first=0.01), clients=2, warmup=0.1, duration=0.2)
    assert s.warmup_requests > 0
    assert s.requests > 0
    assert s.warmup_requests + s.requests == len(server.bodies)
    assert s.window_s == pytest.approx(0.2)
    consistent(s)


def test_refusals_are_counted_and_waits_honoured() -> None:
    refused: list[str] = []
    again: list[str] = []

    def script(n: int, body: dict[str, Any]) -> Answer:
        prompt = body["messages"][0]["content"]
        if prompt not in refused:
            refused.append(prompt)
            full = b'{"error":{"message":"full","code":"overloaded"}}'
            return plain(429, full, b"retry-after: 7", b"Retry-After-Ms: 30")
        again.append(prompt)
        return stream(5) if len(again) < 4 else plain(503, b"{}")

    s, server = load(script, rate=2000, requests=4, retry=1)
    r = s.retries
    assert (s.ok, s.refused, s.refusals) == (3, 1, {"429": 4, "503": 1})
    assert (r.second_sent, r.second_accepted, r.second_accepted_share) == (4, 3, 0.75)
    assert s.retry_after_s is not None
    assert s.retry_after_s.max == 0.03
    assert s.refusals_without_retry_after == 1
    assert s.messages["429"] == "overloaded: full"
    assert r.ttft_ms is not None
    assert r.ttft_from_resend_ms is not None
    assert r.ttft_ms.p50 >= 30
    assert r.ttft_ms.p50 > r.ttft_from_resend_ms.p50
    assert len(server.bodies) == 8
    consistent(s)


def test_errors_by_kind() -> None:
    failing: list[Answer] = [
        plain(500, b'{"detail":"oops"}'),
        [STREAM_HEAD, framed(TOKEN), None],
        [STREAM_HEAD, framed(TOKEN + DONE) + b"0\r\n\r\n"],
        [STREAM_HEAD, framed(b'data: {"error":{"message":"died","type":"server_error"}}\n\n') + b"0\r\n\r\n"],
        [STREAM_HEAD, framed(FINISH) + b"0\r\n\r\n"],
        plain(200, b"{}"),
        [b"SSH-2.0-OpenSSH\r\n"],
        [STREAM_HEAD, 2.0],
    ]
    s, _ = load(lambda n, body: failing[n] if n < 8 else stream(5), rate=1000, requests=9, timeout=0.5)
    kinds = [
        "http_500",
        "connection_lost",
        "truncated",
        "error_event",
        "no_text",
        "not_a_stream",
        "bad_http",
        "timeout",
    ]
    assert s.errors == dict.fromkeys(kinds, 1)
    assert (s.ok, s.failed) == (1, 8)
    assert s.messages["error_event"] == "server_error: died"
    assert s.messages["http_500"] == "oops"


def test_an_idle_connection_that_was_closed_costs_a_resend() -> None:
    """The server shuts every connection when the next request comes over it."""
    answers = [stream(2), [None], stream(2), [None], stream(2)]
    s, _ = load(lambda n, body: answers[n], clients=1, requests=3)
    assert (s.ok, s.failed, s.resent) == (3, 0, 2)


def test_a_stream_may_end_with_its_connection() -> None:
    head = b"HTTP/1.0 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
    s, _ = load(lambda n, body: [head, TOKEN, TOKEN, FINISH + usage(2), None], rate=500, requests=3)
    assert (s.ok, s.failed) == (3, 0)


def test_what_is_under_way_at_the_end_is_cut_off_and_said() -> None:
    s, _ = load(lambda n, body: stream(5, first=5.0 if n else 0.0), rate=100, duration=0.1, drain=0.05)
    assert s.cut_off == s.requests - 1 > 0
    assert s.ok == 1
    assert s.goodput_share == pytest.approx(1 / s.requests)
    assert any("cut off" in warning for warning in s.warnings)
    consistent(s)


def test_a_trace_gives_times_and_lengths(tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    rows = [(0, 10, 4), (1000, 20, 6), (2000, 30, 8)]
    trace.write_text("".join(f'{{"timestamp":{t},"input_length":{i},"output_length":{o}}}\n' for t, i, o in rows))
    s, server = load(
        lambda n, body: stream(5), trace=f"{trace}:50", length_scale=0.5, endpoint="completions", api_key="k"
    )
    assert [(len(b["prompt"].split()), b["max_tokens"]) for b in server.bodies] == [(5, 2), (10, 3), (15, 4)]
    assert "POST /v1/completions " in server.heads[0]
    assert "Authorization: Bearer k" in server.heads[0]
    assert s.ok == 3


def test_no_server() -> None:
    with pytest.raises(EngineUnavailable):
        measure(Options(url="http://127.0.0.1:9", rate=1))


def test_command(tmp_path: Path) -> None:
    with scripted(lambda n, body: stream(5)) as (_, url):
        file = tmp_path / "out.json"
        common = ["bench", "load", "--url", url, "--rate", "500", "--requests", "5", "--output-tokens", "5"]
        shown = CliRunner().invoke(app, [*common, "--json", str(file), "--api-key", "secret"])
        bare = CliRunner().invoke(app, [*common, "--json", "-"])
    assert shown.exit_code == bare.exit_code == 0, shown.output
    assert "5 ok, 0 refused" in shown.stdout
    assert json.loads(file.read_text())["ok"] == json.loads(bare.stdout)["ok"] == 5
    assert "secret" not in file.read_text()


def test_against_headway() -> None:
    with make_rig(pace=0.001) as rig:
        outcome: Outcome = measure(
            Options(url=rig.url, rate=200, requests=20, input_tokens="4-8", output_tokens="6-10", seed=1)
        )
        load = rig.wait_idle()
    s = outcome.summary
    assert (s.ok, s.failed, s.refused, s.cut_off) == (20, 0, 0, 0), s.messages
    assert not load.running
    assert s.output_tokens is not None
    assert 6 <= s.output_tokens.p50 <= s.output_tokens.max <= 10
    assert not any("usage" in warning or "shorter" in warning for warning in s.warnings)
