"""Whose time runs out next: deadlines of live sequences, ends of the longest wait in the queue and for a token."""

from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heappush

from headway.core.config import PromiseSettings
from headway.core.events import Emission, Finish
from headway.scheduling.sequence import Sequence


def verdict(sequence: Sequence, now: float, promise: PromiseSettings) -> Emission | None:
    """The last emission of a live sequence whose time is up; None: it is not."""
    if sequence.deadline is not None and sequence.deadline <= now:
        if sequence.truncate and sequence.emitted:
            return Emission(id=sequence.id, finish=Finish.LENGTH, detail="cut at the request's deadline")
        where = "while it ran" if sequence.started else "in the queue"
        return Emission(id=sequence.id, finish=Finish.EXPIRED, detail=f"the request's deadline passed {where}")
    if not sequence.started:
        if sequence.queue_end is None or sequence.queue_end > now:
            return None
        # Whoever comes back after as long again finds a shorter queue, or is told so at once.
        limit = promise.queue_s
        detail = f"no step could be given to it within {limit:g} s (promise.queue_s)"
        return Emission(id=sequence.id, finish=Finish.REFUSED, detail=detail, retry_after_s=limit)
    watched = sequence.token_end is not None and promise.token_s
    if watched and sequence.last_token + promise.token_s <= now:
        detail = f"no token could be given to it within {promise.token_s:g} s (promise.token_s)"
        return Emission(id=sequence.id, finish=Finish.EXPIRED, detail=detail)
    return None


class Deadlines:
    """A heap, so that a step looks at one entry instead of at every sequence. Entries of ended sequences are dropped
    when they come due, or all together once they outnumber the live ones."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int]] = []  # (Clock seconds, id)

    @property
    def next(self) -> float | None:
        return self._heap[0][0] if self._heap else None

    def add(self, sequence: Sequence) -> None:
        for time in (sequence.deadline, sequence.queue_end):
            if time is not None:
                heappush(self._heap, (time, sequence.id))

    def remind(self, time: float, sequence: Sequence) -> None:
        """Has `pop_due` name it at `time`."""
        heappush(self._heap, (time, sequence.id))

    def pop_due(self, now: float) -> Iterator[int]:
        """Ids of those whose time may be up; look at the sequence to see which."""
        while self._heap and self._heap[0][0] <= now:
            yield heappop(self._heap)[1]

    def compact(self, live: Iterable[Sequence], count: int) -> None:
        if len(self._heap) > 4 * count + 64:
            self._heap = [(t, s.id) for s in live for t in (s.deadline, s.queue_end, s.token_end) if t is not None]
            heapify(self._heap)
