"""`headway bench policies`: continuous, dynamic and static batching on one trace, with the same seats.

The trace is replayed in real time at several rates, stated as shares of what continuous batching can do here: so the
curve of throughput against latency bends in the same place on any machine.
"""

import statistics
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from msgspec import structs

from headway.bench.load_arrivals import Arrival
from headway.bench.load_stats import percentile
from headway.bench.policies_trace import at_rate, built_in, from_file
from headway.bench.random_request import random_request
from headway.core.clock import Clock, MonotonicClock
from headway.core.config import PromiseSettings, Settings
from headway.core.events import Finish, StepMessage
from headway.core.request import EngineRequest
from headway.core.runner import Runner
from headway.model.load import load_runner
from headway.scheduling.engine import Engine

POLICIES = ("continuous", "dynamic", "static")
LOADS = (0.4, 0.8, 1.2, 2.0)  # of the requests per second that continuous batching can serve
SEATS = 4  # sequences that may share a step, whatever the policy
REQUESTS = 20  # five full batches, so that `static` waits for no last one
ROUNDS = 3

Progress = Callable[[str], None]
Sleep = Callable[[float], None]


@dataclass(frozen=True, slots=True)
class Point:
    """Medians over the rounds of one policy under one load. Latency is from the due arrival to the last token."""

    load: float
    requests_per_s: float  # offered
    policy: str
    tokens_per_s: float  # generated
    p50_s: float
    p99_s: float


@dataclass(frozen=True, slots=True)
class Comparison:
    trace: str
    requests: int
    seats: int
    rounds: int
    capacity_per_s: float  # requests per second of continuous batching when all are there at once
    points: list[Point]

    def as_json(self) -> dict[str, object]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Replay:
    """What came of one run."""

    seconds: float  # to the last token
    tokens: int
    latencies: list[float]  # ascending


def compare(
    path: Path,
    settings: Settings,
    progress: Progress,
    trace_file: Path | None = None,
    requests: int = REQUESTS,
    rounds: int = ROUNDS,
) -> Comparison:
    """Replays the built-in trace, or the head of a file that `headway bench load --trace` reads too."""
    runner = load_runner(path, settings.engine)
    try:
        info = runner.info
        room = info.blocks // info.layer_groups * info.block_size
        longest = min(info.context, settings.engine.context or info.context, room // SEATS)
        trace = built_in(requests) if trace_file is None else from_file(trace_file, requests, longest)
        name = "built-in" if trace_file is None else trace_file.name
        capacity, points = sweep(runner, settings, trace, rounds, progress)
        return Comparison(name, len(trace), SEATS, rounds, capacity, points)
    finally:
        runner.close()


def sweep(
    runner: Runner,
    settings: Settings,
    trace: Sequence[Arrival],
    rounds: int,
    progress: Progress,
    clock: Clock | None = None,
    sleep: Sleep = time.sleep,
) -> tuple[float, list[Point]]:
    """The capacity in requests per second, and a point for each load and policy, which take turns."""
    clock = clock or MonotonicClock()

    def run(policy: str, arrivals: Sequence[Arrival]) -> Replay:
        return replay(runner, seated(settings, policy), arrivals, clock, sleep)

    progress("all requests at once, continuous batching")
    at_once = [Arrival(0.0, row.input_tokens, row.output_tokens) for row in trace]
    run("continuous", at_once)  # the first steps of a process are slow
    capacity = len(trace) / run("continuous", at_once).seconds
    seen: dict[tuple[float, str], list[tuple[float, float, float]]] = {
        (load, policy): [] for load in LOADS for policy in POLICIES
    }
    for number in range(rounds):  # outermost: a spell in which the machine is busy falls on all of them
        for load in LOADS:
            rate = load * capacity
            progress(f"round {number + 1} of {rounds}, {rate:.1f} requests/s")
            for policy in POLICIES:
                seen[load, policy].append(_figures(run(policy, at_rate(trace, rate))))
    return capacity, [
        Point(load, load * capacity, policy, *map(statistics.median, zip(*figures, strict=True)))
        for (load, policy), figures in seen.items()
    ]


def _figures(run: Replay) -> tuple[float, float, float]:
    return run.tokens / run.seconds, percentile(run.latencies, 0.5), percentile(run.latencies, 0.99)


def seated(settings: Settings, policy: str) -> Settings:
    """Only the policy differs: equal seats, which nothing tunes, and nothing refused, cut or paced for a promise."""
    return settings.model_copy(
        update={
            "batching": settings.batching.model_copy(update={"policy": policy, "max_batch": SEATS}),
            "engine": settings.engine.model_copy(update={"max_sequences": SEATS}),
            "promise": PromiseSettings(itl_ms=0.0),
            "tuning": settings.tuning.model_copy(update={"enabled": False}),
            "queue": settings.queue.model_copy(update={"max_requests": 1 << 30, "max_tokens": 1 << 40}),
        }
    )


def replay(
    runner: Runner, settings: Settings, trace: Sequence[Arrival], clock: Clock, sleep: Sleep = time.sleep
) -> Replay:
    """One run of a fresh engine. RuntimeError if a request did not get all its tokens."""
    ended: dict[int, float] = {}
    tokens = 0

    def publish(worker: int, message: StepMessage) -> None:
        nonlocal tokens
        for emission in message.emissions:
            tokens += len(emission.tokens)
            if emission.finish is not None:
                if emission.finish is not Finish.LENGTH:
                    raise RuntimeError(f"request {emission.id} ended as {emission.finish}: {emission.detail}")
                ended[emission.id] = clock.now()

    engine = Engine(runner, settings, clock, epoch=0, publish=publish)
    engine.warm_up()
    vocab = runner.info.vocab_size
    # Prompts are drawn before the clock starts: that would delay the first ones.
    made = [
        random_request(i, row.input_tokens or 1, row.output_tokens or 1, vocab, row.at) for i, row in enumerate(trace)
    ]
    start = clock.now()
    drive(engine, deque(structs.replace(r, arrival=start + r.arrival) for r in made), clock, sleep)
    latencies = sorted(ended[i] - start - row.at for i, row in enumerate(trace))
    return Replay(max(ended.values()) - start, tokens, latencies)


def drive(engine: Engine, coming: "deque[EngineRequest]", clock: Clock, sleep: Sleep) -> None:
    """Steps until everything has come and gone; sleeps only when there is nothing to do."""
    while coming or engine.has_work:
        now = clock.now()
        while coming and coming[0].arrival <= now:
            engine.submit(coming.popleft())
        if engine.step():
            continue
        now = clock.now()
        wakes = [coming[0].arrival] if coming else []
        wake = engine.next_wake(now)
        wakes += [] if wake is None else [wake]
        if not wakes:
            raise RuntimeError("the engine has work, but waits for nothing that could come")
        sleep(max(0.0, min(wakes) - now))
