"""What planning costs: plan and commit at 64 and 1,000 sequences, and 100,000 requests simulated in under a minute."""

import random
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass

import msgspec
from loop_simulate import CHAT, LANE_WEIGHTS, LANES, SHORT, TENANTS, Simulated, simulate
from report import Benchmark, Need, note, number, show, where

from headway.bench.load_stats import Spread
from headway.bench.plot import bars
from headway.bench.random_request import random_request
from headway.core.config import EngineSettings, Settings
from headway.core.request import EngineRequest
from headway.core.runner import Sampled, StepResult
from headway.model.fake_runner import default_info
from headway.scheduling.cost_model import CostModel
from headway.scheduling.scheduler import Scheduler
from headway.serving.engine_process import defer_garbage

COSTS = (1e-3, 1e-6, 1e-8, 1e-5)  # seconds, so small that the promised gap never keeps anybody out
LENGTHS = 64, 192  # tokens in and out
STEP_S = 0.02
VOCABULARY = 1024
TOKEN = Sampled(7)
WITHIN_S = 60.0


@dataclass(frozen=True, slots=True)
class Crowd:
    name: str
    running: int
    waiting: int
    bound_ms: float


CROWDS = (Crowd("64 running", 64, 0, 0.15), Crowd("1,000 running, 10,000 waiting", 1000, 10_000, 2.0))


@dataclass(frozen=True, slots=True)
class Cost:
    """Milliseconds a step."""

    plan: Spread
    commit: Spread
    both: Spread
    ends: float  # sequences that end in a step, on average


def requests() -> Iterator[EngineRequest]:
    """Of all lanes and several tenants."""
    chance = random.Random(0)
    serial = 0
    while True:
        serial += 1
        made = random_request(serial, chance.randint(*LENGTHS), chance.randint(*LENGTHS), VOCABULARY, 0.0)
        lane = chance.choices(LANES, LANE_WEIGHTS)[0]
        yield msgspec.structs.replace(made, lane=lane, tenant=chance.choice(TENANTS))


class Stage:
    """The real scheduler; whatever is planned gets its tokens at once, and for each that ends another comes."""

    def __init__(self, crowd: Crowd) -> None:
        info = default_info(blocks=32 * crowd.running, slots=crowd.running, max_batch_tokens=4096)
        engine = EngineSettings(max_sequences=crowd.running, max_step_tokens=512 + 2 * crowd.running)
        self.scheduler = Scheduler(info, Settings(engine=engine), CostModel(COSTS))
        self._coming = requests()
        self._now = 0.0
        self.add(crowd.running + crowd.waiting)

    def add(self, count: int) -> None:
        for _ in range(count):
            self.scheduler.add(msgspec.structs.replace(next(self._coming), arrival=self._now))

    def step(self) -> tuple[float, float, int]:
        """Seconds of plan and of commit, and how many ended."""
        begin = time.perf_counter()
        plan = self.scheduler.plan(self._now)
        planned = time.perf_counter()
        result = StepResult([TOKEN if work.sample else None for work in plan.batch.work], 0.0)
        computed = time.perf_counter()
        emissions = self.scheduler.commit(plan, result)
        committed = time.perf_counter()
        ended = sum(emission.finish is not None for emission in emissions)
        self.add(ended)
        self._now += STEP_S
        return planned - begin, committed - computed, ended


def measure(crowd: Crowd, warm: int, steps: int) -> Cost:
    note(f"{crowd.name}: {warm} steps to a steady state, then {steps}")
    stage = Stage(crowd)
    for _ in range(warm):
        stage.step()
    taken = [stage.step() for _ in range(steps)]
    running, waiting = len(stage.scheduler.running), len(stage.scheduler.waiting)
    note(f"  at the end {running:,} running, {waiting:,} waiting")
    parts = ([p for p, _, _ in taken], [c for _, c, _ in taken], [p + c for p, c, _ in taken])
    plan, commit, both = (Spread.of(values, 1e3) for values in parts)
    assert plan is not None and commit is not None and both is not None
    return Cost(plan, commit, both, sum(ended for _, _, ended in taken) / steps)


def main() -> int:
    bench = Benchmark("loop", __doc__)
    defer_garbage()  # as the engine does
    warm, steps = (100, 50) if bench.short else (400, 1000)
    costs = {crowd.name: measure(crowd, warm, steps) for crowd in CROWDS}
    note("simulating")
    simulated = simulate(SHORT, 2000 if bench.short else 100_000)
    note("simulating chat")
    chat = simulate(CHAT, 100 if bench.short else 4000)
    rows = [
        (name, *(number(v) for v in (c.plan.p50, c.commit.p50, c.both.p50, c.both.p99, c.ends)))
        for name, c in costs.items()
    ]
    show("ms a step", ("", "plan p50", "commit p50", "both p50", "both p99", "ends a step"), rows)
    show_simulated(simulated)
    show_simulated(chat)
    heights = {
        "plan": [c.plan.p50 for c in costs.values()],
        "commit": [c.commit.p50 for c in costs.values()],
        "bound for both": [crowd.bound_ms for crowd in CROWDS],
    }
    how = (
        f"medians of {steps} steps, several lanes and tenants, for each that ends another comes; {where(client=False)}"
    )
    title = "What planning a step costs"
    bars(list(costs), heights, "ms", bench.plot, title=title, note=how, number="{:.3f}", grey="bound for both")
    needs = [Need(f"{c.name}: plan and commit, ms (median)", costs[c.name].both.p50, c.bound_ms) for c in CROWDS]
    scaled = simulated.wall_s * 100_000 / simulated.requests
    needs.append(Need("seconds for 100,000 simulated requests", scaled, WITHIN_S))
    data = {"costs_ms": {n: asdict(c) for n, c in costs.items()}, "simulated": asdict(simulated), "chat": asdict(chat)}
    return bench.finish(data, needs)


def show_simulated(s: Simulated) -> None:
    ends = ", ".join(f"{count:,} {name}" for name, count in sorted((s.outcomes or {}).items()))
    rows = [
        ("requests", f"{s.requests:,} ({ends})"),
        ("steps", f"{s.steps:,}, of {s.batch:.1f} sequences on average"),
        ("tokens computed", f"{s.tokens:,}"),
        ("took", f"{s.wall_s:.1f} s for {s.simulated_s:,.0f} s: {s.times_life:.1f} times faster than life"),
    ]
    show(f"simulated: {s.name} (real engine, fake runner, manual clock)", ("what", ""), rows)


if __name__ == "__main__":
    sys.exit(main())
