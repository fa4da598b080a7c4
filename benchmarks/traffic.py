"""Load on a benchmark's server, made of the parts of `headway bench load`: several at once, in one event loop."""

import asyncio
import itertools
from collections.abc import Coroutine
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import uvloop
from report import note
from server import Server

from headway.bench.load_http import Address, Pool, clock
from headway.bench.load_options import Options, make_pacing, make_workload
from headway.bench.load_run import LoadRun, make_request
from headway.bench.load_stats import Summary, summarise
from headway.bench.load_try import Try
from headway.bench.load_workload import Workload

NEWS_S = 10.0  # between two lines of progress
CONNECTIONS = 1024

T = TypeVar("T")

_fresh = itertools.count(1)  # seeds of prompts: none is asked for twice, so the prefix cache never helps


@dataclass(frozen=True, slots=True)
class Flow:
    """What a load did. The window, in seconds of `clock`, is all but its warm-up and what ran out after it."""

    run: LoadRun
    begin: float
    end: float
    summary: Summary


@dataclass(frozen=True, slots=True)
class Window:
    """What the engine did in a stretch of time."""

    seconds: float
    steps: float
    computed_tokens: float

    @property
    def step_ms(self) -> float:
        """Mean; right where the engine never idled."""
        return self.seconds / self.steps * 1e3 if self.steps else 0.0

    @property
    def tokens_per_s(self) -> float:
        return self.computed_tokens / self.seconds


def run(work: Coroutine[Any, Any, T]) -> T:
    return uvloop.run(work)


async def flow(server: Server, what: str, options: Options, delay_s: float = 0.0) -> Flow:
    """Runs a load of a stated duration. Its seed is that of the arrivals; prompts are new every time."""
    await asyncio.sleep(delay_s)
    address = Address.parse(server.url)
    workload = replace(make_workload(options), model=server.model, seed=next(_fresh))
    pacing = make_pacing(options)
    assert pacing.duration_s is not None
    head = _head(address, options.api_key)
    load = LoadRun(pacing, Pool(address, options.connections), make_request(workload, head))
    note(f"{what}: {pacing.warmup_s + pacing.duration_s:g} s")
    news = asyncio.create_task(_tell(what, load))
    try:
        await load.run()
    finally:
        news.cancel()
    begin = load.start + pacing.warmup_s
    end = begin + pacing.duration_s
    return Flow(load, begin, end, summarise(load.samples, options.promise, begin, end, load.ticks))


async def _tell(what: str, load: LoadRun) -> None:
    while True:
        await asyncio.sleep(NEWS_S)
        counts = ", ".join(f"{load.tally[name]} {name}" for name in ("ok", "refused", "failed"))
        note(f"  {what}: {clock() - load.start:.0f} s, {len(load.samples)} sent, {load.live} live, {counts}")


async def watch(server: Server, delay_s: float, seconds: float) -> Window:
    """What the engine does from `delay_s` on for `seconds`, by its counters."""
    await asyncio.sleep(delay_s)
    begin, before = clock(), await asyncio.to_thread(server.metrics)
    await asyncio.sleep(seconds)
    end, after = clock(), await asyncio.to_thread(server.metrics)
    steps, computed = (after[name] - before[name] for name in ("headway_engine_steps_total", COMPUTED))
    return Window(end - begin, steps, computed)


COMPUTED = "headway_computed_tokens_total"


class Client:
    """Sends single requests of stated lengths. Use it in one event loop only."""

    def __init__(self, server: Server) -> None:
        address = Address.parse(server.url)
        self._pool = Pool(address, CONNECTIONS)
        self._head = _head(address, None)
        self._model = server.model

    def ask(self, prompt_tokens: int, output_tokens: int) -> tuple[Try, "asyncio.Task[None]"]:
        """A new prompt, sent at once: what comes back, and when it is complete."""
        workload = Workload(self._model, seed=next(_fresh))
        request, _ = make_request(workload, self._head)(0, prompt_tokens, output_tokens)
        attempt = Try(clock(), chat=True)
        return attempt, asyncio.create_task(self._pool.send(request, attempt, 120.0))


def _head(address: Address, api_key: str | None) -> bytes:
    return address.head("POST", "/chat/completions", api_key) + b"Content-Type: application/json\r\n"
