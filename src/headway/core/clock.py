"""Time as a dependency, so that the scheduler can be tested on a clock that only moves when told to."""

import time
from typing import Protocol


class Clock(Protocol):
    """Seconds on a monotonic scale that all processes of one machine share."""

    def now(self) -> float: ...


class MonotonicClock:
    """The machine's monotonic clock; on one machine its readings compare across processes."""

    def now(self) -> float:
        return time.monotonic()


class ManualClock:
    """A clock for tests: it stands still until `advance` is called."""

    def __init__(self, start: float = 0.0) -> None:
        self._now = start

    def now(self) -> float:
        return self._now

    def advance(self, seconds: float) -> None:
        if seconds < 0:
            raise ValueError("a clock does not run backwards")
        self._now += seconds
