"""Many requests through the real engine on a clock that only steps move; the runner is the tests' oracle."""

import random
import time
from array import array
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from report import note

from headway.core.clock import ManualClock
from headway.core.config import EngineSettings, Settings
from headway.core.events import StepMessage
from headway.core.lane import Lane
from headway.core.request import Cancel, EngineRequest
from headway.core.runner import Batch
from headway.core.sampling import Sampling
from headway.model.fake_runner import FakeRunner, default_info
from headway.scheduling.cost_model import StepLoad
from headway.scheduling.engine import Engine
from headway.scheduling.step_record import StepRecord

VOCABULARY = range(3, 1024)
LANES = (Lane.PRIORITY, Lane.DEFAULT, Lane.FLEX)
LANE_WEIGHTS = (1, 6, 3)
TENANTS = ("a", "b", "c", "d", "e")
CANCELLED = 0.05  # at a moment of the first CANCEL_S, when some have ended already
CANCEL_S = 0.4


@dataclass(frozen=True, slots=True)
class Trace:
    name: str
    per_s: float  # arrivals
    prompt: tuple[int, int]  # tokens
    output: tuple[int, int]
    costs: tuple[float, float, float, float]  # of the cost model, seconds

    def step_time(self, batch: Batch) -> float:
        load = StepLoad.of(batch)
        features = 1.0, load.tokens - load.sequences, load.context / 1000, load.sequences
        return sum(c * f for c, f in zip(self.costs, features, strict=True))


SHORT = Trace("short requests, a fast model", 150.0, (8, 64), (4, 32), (8e-3, 4e-5, 2e-5, 4e-5))
CHAT = Trace(
    "chat at capacity, the default model",  # what headway learned of it on the machine of docs/promise.md
    4.35, (64, 192), (64, 192), (3.6e-3, 5.0e-4, 6.1e-5, 6.3e-4),
)  # fmt: skip


@dataclass(slots=True)
class Simulated:
    name: str
    requests: int
    wall_s: float = 0.0
    simulated_s: float = 0.0
    steps: int = 0
    sequences: int = 0  # summed over the steps
    tokens: int = 0  # computed
    outcomes: dict[str, int] | None = None

    @property
    def batch(self) -> float:
        return self.sequences / self.steps

    @property
    def times_life(self) -> float:
        return self.simulated_s / self.wall_s


def arrivals(trace: Trace, count: int, seed: int = 0) -> Iterator[tuple[EngineRequest, float | None]]:
    """Requests of all lanes and several tenants, and when each is cancelled, if it is."""
    chance = random.Random(seed)
    now = 0.0
    for serial in range(1, count + 1):
        now += chance.expovariate(trace.per_s)
        request = EngineRequest(
            id=serial,
            epoch=0,
            prompt=array("I", chance.choices(VOCABULARY, k=chance.randint(*trace.prompt))).tobytes(),
            sampling=Sampling(max_tokens=chance.randint(*trace.output), seed=serial),
            arrival=now,
            lane=chance.choices(LANES, LANE_WEIGHTS)[0],
            tenant=chance.choice(TENANTS),
        )
        yield request, now + CANCEL_S * chance.random() if chance.random() < CANCELLED else None


def simulate(trace: Trace, count: int) -> Simulated:
    result, ends = Simulated(trace.name, count), Counter[str]()
    clock = ManualClock()
    runner = FakeRunner(default_info(blocks=1024), clock=clock, step_time=trace.step_time)

    def publish(worker: int, message: StepMessage) -> None:
        ends.update(e.finish.name.lower() for e in message.emissions if e.finish is not None)

    def on_step(record: StepRecord) -> None:
        result.steps += 1
        result.sequences += record.sequences
        result.tokens += record.tokens

    settings = Settings(engine=EngineSettings(max_sequences=64))
    engine = Engine(runner, settings, clock, 0, publish, on_step)
    begin, coming = time.perf_counter(), arrivals(trace, count)
    due, cancels = next(coming, None), list[tuple[float, int]]()
    while due is not None or engine.has_work:
        now = clock.now()
        while due is not None and due[0].arrival <= now:
            request, cancel_at = due
            engine.submit(request)
            if cancel_at is not None:
                cancels.append((cancel_at, request.id))
            if request.id % (count // 10 or 1) == 0:
                note(f"  {request.id:,} requests have come")
            due = next(coming, None)
        for cancel in [c for c in cancels if c[0] <= now]:
            cancels.remove(cancel)
            engine.submit(Cancel(id=cancel[1], epoch=0, reason="disconnect"))
        if not engine.step():
            wake = engine.next_wake(now)
            times = [t for t in (wake, due[0].arrival if due else None) if t is not None and t > now]
            clock.advance(min(times) - now if times else 1e-3)
    result.wall_s, result.simulated_s = time.perf_counter() - begin, clock.now()
    result.outcomes = dict(ends)
    return result
