"""Thousands of connections from one process, at little cost: `python many_clients.py PORT IDLE STREAMS TOKENS`.

Prints "idle" when the idle ones have had an answer each, and reads a line before the streams begin. At the end a line
of JSON: how many were served and what the streams saw.
"""

import asyncio
import json
import re
import resource
import sys
import time

AT_ONCE = 200  # connections being opened
PATIENCE_S = 300.0
USAGE = re.compile(rb'"completion_tokens": ?(\d+)')


def request(body: dict[str, object]) -> bytes:
    data = json.dumps(body).encode()
    head = "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data


class Client(asyncio.Protocol):
    """Sends one request; notes when events come and how many tokens there were."""

    def __init__(self, sent: bytes) -> None:
        self._sent = sent
        self._tail = b""
        self.tokens = 0  # as the usage says
        self.times: list[float] = []
        self.closed = False
        self.done = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(self._sent)

    def data_received(self, data: bytes) -> None:
        seen = self._tail + data
        if not self._tail and not seen.startswith(b"HTTP/1.1 200"):
            self._finish(False)
        if b"data: {" in data:
            self.times.append(time.monotonic())
        if found := USAGE.search(seen):
            self.tokens = int(found[1])
        if b"data: [DONE]" in seen or (found and not self.times):
            self._finish(True)
        self._tail = seen[-100:]

    def connection_lost(self, error: Exception | None) -> None:
        self.closed = True
        self._finish(False)

    def _finish(self, well: bool) -> None:
        if not self.done.done():
            self.done.set_result(well)


async def connect(port: int, sent: bytes, count: int) -> list[Client]:
    loop, slots = asyncio.get_running_loop(), asyncio.Semaphore(AT_ONCE)

    async def one() -> Client:
        async with slots:
            _, client = await loop.create_connection(lambda: Client(sent), "127.0.0.1", port)
            await asyncio.sleep(0)
            return client

    return list(await asyncio.gather(*[one() for _ in range(count)]))


async def served(clients: list[Client]) -> int:
    return sum(await asyncio.wait_for(asyncio.gather(*[c.done for c in clients]), PATIENCE_S))


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))] if values else 0.0


async def main(port: int, idle: int, streams: int, tokens: int) -> None:
    resting = await connect(port, request({"prompt": "x", "max_tokens": 1}), idle)
    answered = await served(resting)
    print("idle", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    asked: dict[str, object] = {"prompt": "y", "max_tokens": tokens, "ignore_eos": True, "stream": True}
    asked["stream_options"] = {"include_usage": True}
    running = await connect(port, request(asked), streams)
    ended = await served(running)
    gaps = [b - a for c in running for a, b in zip(c.times, c.times[1:], strict=False)]
    slowest = [len(c.times) / (c.times[-1] - c.times[0]) for c in running if len(c.times) > 1]
    told = {
        "answered": answered,
        "still_open": sum(not client.closed for client in resting),
        "ended": ended,
        "tokens": sorted({client.tokens for client in running}),
        "gap_p50_s": round(percentile(gaps, 0.5), 3),
        "gap_p99_s": round(percentile(gaps, 0.99), 3),
        "least_tokens_per_s": round(min(slowest), 2),
    }
    print(json.dumps(told), flush=True)


if __name__ == "__main__":
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    asyncio.run(main(*[int(word) for word in sys.argv[1:5]]))
