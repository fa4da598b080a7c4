"""A rig for long simulations: it looks at plans and times instead of checking every invariant at every step."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from rig import Rig

from headway.core.clock import ManualClock
from headway.core.events import Finish, StepMessage
from headway.core.request import EngineRequest
from headway.core.runner import Batch
from headway.model.fake_runner import default_info
from headway.scheduling.cost_model import StepLoad
from headway.scheduling.engine import Engine
from headway.scheduling.plan import Plan


def step_time(batch: Batch) -> float:
    """Of a small model: 25 streams, or 70 tokens of a prompt beside one, are what 50 ms hold."""
    load = StepLoad.of(batch)
    return 4e-3 + 6e-4 * load.tokens + 3e-8 * load.context + 2e-4 * load.sequences


@dataclass(slots=True)
class Seen:
    """One step."""

    plan: Plan
    begin: float
    predicted: float  # seconds, before it was computed
    time: float  # that a step with flex may take


class Watched(Rig):
    """`source` yields requests by arrival; each is submitted when its time has come."""

    def __init__(self, settings: Any, **runner: Any) -> None:
        info = runner.pop("info", None) or default_info(blocks=4096, context=512, slots=256, max_batch_tokens=512)
        super().__init__(info, settings, **{"step_time": step_time, **runner})
        self.steps: list[Seen] = []
        self.times: dict[int, list[float]] = defaultdict(list)  # of tokens, by request
        self.ends: dict[int, tuple[float, Finish]] = {}
        plan = self.scheduler.plan

        def watch(now: float) -> Plan:
            made = plan(now)
            if made.batch.work:
                limit = self.scheduler.pace.flex_time(made.decodes)
                self.steps.append(Seen(made, now, self.engine.costs.predict(made.load), limit))
            return made

        self.scheduler.plan = watch  # type: ignore[method-assign]

    def play(self, source: Iterator[EngineRequest], until: float, every: Callable[[], None] = lambda: None) -> None:
        """Steps up to a time, or until there is nothing left."""
        drive(self.engine, self.clock, source, self.submit, until, every)

    def first(self, request: int) -> float:
        """Seconds from arrival to the first token."""
        return self.times[request][0] - self.requests[request].arrival

    def gaps(self, request: int) -> list[float]:
        return [b - a for a, b in pairwise(self.times[request])]

    def lane_tokens(self, since: float = 0.0) -> list[int]:
        """Computed, by lane."""
        steps = [s.plan.lane_tokens for s in self.steps if s.begin >= since]
        return [sum(tokens) for tokens in zip(*steps, strict=True)]

    def _publish(self, worker: int, message: StepMessage) -> None:
        super()._publish(worker, message)
        now = self.clock.now()
        for emission in message.emissions:
            self.times[emission.id] += [now] * len(emission.tokens)
            if emission.finish is not None:
                self.ends[emission.id] = (now, emission.finish)


def drive(
    engine: Engine,
    clock: ManualClock,
    source: Iterator[EngineRequest],
    submit: Callable[[EngineRequest], None],
    until: float = float("inf"),
    every: Callable[[], None] = lambda: None,
) -> None:
    """Delivers each request at its arrival and steps, sleeping as the engine says; calls `every` before each step."""
    coming = next(source, None)
    while clock.now() < until:
        while coming is not None and coming.arrival <= clock.now():
            submit(coming)
            coming = next(source, None)
        every()
        wake = engine.next_wake(clock.now())
        if wake is None and coming is None:
            return
        wakes = [t for t in (wake, coming.arrival if coming else None) if t is not None]
        clock.advance(max(0.0, min(wakes) - clock.now()))
        engine.step()
