"""CPU time of the API worker and of the client for each streamed token, the engine's pace being set."""

import asyncio
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from report import note
from server import Server
from traffic import run

from headway.bench.load_http import Address, Pool, clock
from headway.bench.load_run import make_request
from headway.bench.load_try import Try
from headway.bench.load_workload import Workload

STREAMS = 32
LENGTHS = 128, 400  # tokens in and out
PACE_MS = 15  # of a step
POLL_S = 0.02
TYPIST = Path(__file__).with_name("typist.py")
WAYS: dict[str, tuple[bool, dict[str, Any]]] = {  # is it chat, and what more is asked for
    "chat": (True, {}),
    "chat, resumable": (True, {"stream_options": {"include_usage": True, "resumable": True}}),
    "completions": (False, {}),
}


@dataclass(frozen=True, slots=True)
class Cost:
    """Microseconds of CPU time a token, all threads."""

    api_us: float
    client_us: float


def measure_costs(rounds: int) -> dict[str, list[Cost]]:
    """By way. Nothing else of a request counts: from when all streams have begun until the first ends."""
    costs: dict[str, list[Cost]] = {name: [] for name in WAYS}
    with Server(str(PACE_MS), script=TYPIST) as server:
        for index in range(rounds):
            for name, (chat, extra) in WAYS.items():
                note(f"{name}: {STREAMS} streams, round {index + 1}")
                costs[name].append(run(_stream(server, Workload(server.model, chat, seed=index, extra=extra))))
    return costs


async def _stream(server: Server, workload: Workload) -> Cost:
    address, worker = Address.parse(server.url), server.worker()
    head = address.head("POST", "/chat/completions" if workload.chat else "/completions", None)
    request = make_request(workload, head + b"Content-Type: application/json\r\n")
    pool = Pool(address, STREAMS)
    tries = [Try(clock(), chat=workload.chat) for _ in range(STREAMS)]
    sent = [
        asyncio.create_task(pool.send(request(index, *LENGTHS)[0], attempt, 120.0))
        for index, attempt in enumerate(tries)
    ]
    while not all(attempt.stream.chunks for attempt in tries):  # noqa: ASYNC110  there is no event for it
        await asyncio.sleep(POLL_S)
    before, api, client = _chunks(tries), cpu_s(worker), time.process_time()
    await asyncio.wait(sent, return_when=asyncio.FIRST_COMPLETED)
    tokens = _chunks(tries) - before
    cost = Cost((cpu_s(worker) - api) / tokens * 1e6, (time.process_time() - client) / tokens * 1e6)
    await asyncio.gather(*sent)
    pool.close()
    if any(not attempt.ok or attempt.stream.chunks != LENGTHS[1] for attempt in tries):
        raise RuntimeError(f"not {LENGTHS[1]} events: {[(t.stream.chunks, t.error, t.message) for t in tries]}")
    return cost


def _chunks(tries: list[Try]) -> int:
    return sum(attempt.stream.chunks for attempt in tries)


def cpu_s(process: int) -> float:
    """CPU time of all threads of a process so far."""
    tasks = Path(f"/proc/{process}/task").glob("*/schedstat")
    return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9
