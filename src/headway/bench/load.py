"""`headway bench load`: any OpenAI-compatible server under a stated load, timed from when each request was due.

load_arrivals   when requests come          load_run     sends them, and keeps what came back
load_workload   what they ask               load_stats   percentiles, goodput, what not to trust
load_http       connections                 load_table   prints it
load_sse        counts a stream's tokens     load_try     one sending of a request, and its answer
load_options    the command line
"""

import asyncio
import signal
import sys
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import msgspec
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from headway.bench.load_http import Address, Pool, clock
from headway.bench.load_options import Options, make_pacing, make_workload
from headway.bench.load_run import LoadRun, Pacing, make_request
from headway.bench.load_stats import Summary, summarise
from headway.bench.load_try import Try
from headway.bench.load_workload import Workload
from headway.core.errors import EngineUnavailable, InvalidRequest

REFRESH_S = 0.5
EARLY_S = 0.01  # a timer may ring a millisecond early


@dataclass(frozen=True, slots=True)
class Outcome:
    summary: Summary
    options: dict[str, object]  # as used


def measure(options: Options) -> Outcome:
    """Runs the load. The first Ctrl-C ends it early and still reports."""
    address = Address.parse(options.url)
    pacing = make_pacing(options)
    workload = make_workload(options)
    return _run(_measure(options, address, pacing, workload))


def _run(work: Coroutine[Any, Any, Outcome]) -> Outcome:
    if sys.platform == "win32":
        return asyncio.run(work)
    import uvloop

    return uvloop.run(work)


async def _measure(options: Options, address: Address, pacing: Pacing, workload: Workload) -> Outcome:
    pool = Pool(address, options.connections)
    listed = await _probe(pool, address, options.api_key)
    if not workload.model:
        if not listed:
            raise InvalidRequest("the server lists no model: give --model")
        workload = replace(workload, model=listed[0])
    chat = workload.chat
    head = address.head("POST", "/chat/completions" if chat else "/completions", options.api_key)
    run = LoadRun(pacing, pool, make_request(workload, head + b"Content-Type: application/json\r\n"), chat)
    loop = asyncio.get_running_loop()
    with suppress(NotImplementedError, RuntimeError, ValueError):  # Windows, or not the main thread
        loop.add_signal_handler(signal.SIGINT, run.stop)
    watching = asyncio.create_task(_watch(run))
    try:
        await run.run()
    finally:
        watching.cancel()
        with suppress(NotImplementedError, RuntimeError, ValueError):
            loop.remove_signal_handler(signal.SIGINT)
        await asyncio.gather(watching, return_exceptions=True)
    begin = run.start + pacing.warmup_s
    used = msgspec.to_builtins(options, enc_hook=str) | {"model": workload.model, "api_key": None}
    return Outcome(summarise(run.samples, options.promise, begin, _window_end(run, begin), run.ticks), used)


def _window_end(run: LoadRun, begin: float) -> float | None:
    """None: when the last answer ended, since it was requests, not time, that bounded the run."""
    duration = run.pacing.duration_s
    if duration is not None and run.stopped >= begin + duration - EARLY_S:
        return begin + duration
    return run.stopped if run.interrupted else None


async def _probe(pool: Pool, address: Address, api_key: str | None) -> list[str]:
    """The models listed, if the server lists any. Fails if nothing listens there."""
    probe = Try(clock(), chat=True)
    await pool.send(address.head("GET", "/models", api_key) + b"\r\n", probe, timeout_s=10.0)
    if not probe.status:
        raise EngineUnavailable(f"no server at http://{address.host}:{address.port}: {probe.message or probe.error}")
    try:
        return [str(model["id"]) for model in msgspec.json.decode(probe.body)["data"]] if probe.accepted else []
    except (msgspec.DecodeError, KeyError, TypeError):
        return []


async def _watch(run: LoadRun) -> None:
    """A bar on stderr, if that is a terminal."""
    console = Console(stderr=True)
    columns = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:3.0f}%"), TimeElapsedColumn()
    with Progress(*columns, console=console, auto_refresh=False, disable=not console.is_terminal) as bar:
        task = bar.add_task("connecting", total=_total(run.pacing))
        while True:
            tally = run.tally
            counts = ", ".join(f"{tally[name]} {name}" for name in ("ok", "refused", "failed"))
            text = f"{len(run.samples)} sent, {run.live} live, {counts}"
            passed = clock() - run.start if run.start else 0.0
            bar.update(task, description=text, completed=run.sent if run.pacing.requests is not None else passed)
            bar.refresh()
            await asyncio.sleep(REFRESH_S)


def _total(pacing: Pacing) -> float | None:
    if pacing.requests is not None:
        return pacing.requests
    return None if pacing.duration_s is None else pacing.warmup_s + pacing.duration_s
