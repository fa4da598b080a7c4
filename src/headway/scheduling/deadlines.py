"""Whose time runs out next: deadlines of live sequences, ends of the longest wait in the queue and for a token."""

from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heappush

from headway.scheduling.sequence import Sequence


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
