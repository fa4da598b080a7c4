"""Who may join the running set, and when (the part of batching that users choose by name)."""

from typing import Protocol

from headway.core.config import BatchingSettings


class Policy(Protocol):
    """Asked at every plan. Only newcomers need a seat: a preempted sequence has been let in before."""

    def seats(self, now: float, running: int, ahead: int, waiting: int, oldest: float) -> int:
        """How many waiting sequences may join now. `ahead`: of the running, those that need not make room for them;
        `oldest`: the earliest waiting arrival (waiting > 0)."""
        ...

    def joined(self) -> None:
        """One of them did."""
        ...

    def set_limit(self, limit: int) -> None:
        """Self-tuning wants no more than so many running; a policy that names its own batch keeps to that."""
        ...

    def room(self, running: int) -> int:
        """How many sequences could join without waiting for another to finish (a bound for the queue check)."""
        ...

    def next_ask(self, running: int, waiting: int, oldest: float) -> float | None:
        """When passing time alone will give a seat; None: never, only an event can."""
        ...


class ContinuousPolicy:
    """Any step may let in newcomers, up to a limit that self-tuning sets."""

    def __init__(self, capacity: int) -> None:
        self._capacity = self._limit = capacity

    def seats(self, now: float, running: int, ahead: int, waiting: int, oldest: float) -> int:
        return self._limit - ahead

    def joined(self) -> None:
        pass

    def set_limit(self, limit: int) -> None:
        self._limit = min(limit, self._capacity)

    def room(self, running: int) -> int:
        return max(0, self._limit - running)

    def next_ask(self, running: int, waiting: int, oldest: float) -> float | None:
        return oldest if running < self._limit else None


class _BatchPolicy:
    """Forms a batch when nothing runs: of `max_batch`, or of what is there once the oldest has waited `patience_s`.

    The batch then runs to its end. Its members join as the step's token budget and the blocks allow, so seats may
    stay open over several steps.
    """

    def __init__(self, max_batch: int, patience_s: float) -> None:
        self._max_batch = max_batch
        self._patience_s = patience_s
        self._open = 0

    def seats(self, now: float, running: int, ahead: int, waiting: int, oldest: float) -> int:
        self._open = min(self._open, waiting)  # a member that was cancelled before it joined leaves no seat
        if not running and not self._open and self._complete(now, waiting, oldest):
            self._open = min(waiting, self._max_batch)
        return self._open

    def joined(self) -> None:
        self._open -= 1

    def set_limit(self, limit: int) -> None:
        pass

    def room(self, running: int) -> int:
        return self._open if running or self._open else self._max_batch

    def next_ask(self, running: int, waiting: int, oldest: float) -> float | None:
        if running:
            return None
        return oldest if self._open or waiting >= self._max_batch else oldest + self._patience_s

    def _complete(self, now: float, waiting: int, oldest: float) -> bool:
        return waiting >= self._max_batch or (waiting > 0 and now >= oldest + self._patience_s)


class DynamicPolicy(_BatchPolicy):
    """Gathers up to `max_batch` for a short window after the oldest waiting arrival."""

    def __init__(self, max_batch: int, window_s: float) -> None:
        super().__init__(max_batch, window_s)


class StaticPolicy(_BatchPolicy):
    """Wants exactly `max_batch`; takes fewer only after `max_wait_s`, so that the last few are not stranded."""

    def __init__(self, max_batch: int, max_wait_s: float) -> None:
        super().__init__(max_batch, max_wait_s)


def make_policy(settings: BatchingSettings, capacity: int) -> Policy:
    """`capacity` is how many sequences can run at once; no batch can be larger."""
    batch = min(settings.max_batch, capacity)
    if settings.policy == "dynamic":
        return DynamicPolicy(batch, settings.window_ms / 1000)
    if settings.policy == "static":
        return StaticPolicy(batch, settings.max_wait_ms / 1000)
    return ContinuousPolicy(capacity)
