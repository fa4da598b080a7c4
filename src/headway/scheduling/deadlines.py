"""Which live sequence's time runs out next."""

from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heappush

from headway.scheduling.sequence import Sequence


class Deadlines:
    """A heap, so that a step looks at one entry instead of at every sequence. Entries of ended sequences are dropped
    when they come due, or all together once they outnumber the live ones."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int]] = []  # (deadline, id)

    @property
    def next(self) -> float | None:
        return self._heap[0][0] if self._heap else None

    def add(self, sequence: Sequence) -> None:
        if sequence.deadline is not None:
            heappush(self._heap, (sequence.deadline, sequence.id))

    def pop_due(self, now: float) -> Iterator[tuple[float, int]]:
        while self._heap and self._heap[0][0] <= now:
            yield heappop(self._heap)

    def compact(self, live: Iterable[Sequence], count: int) -> None:
        if len(self._heap) > 2 * count + 64:
            self._heap = [(s.deadline, s.id) for s in live if s.deadline is not None]
            heapify(self._heap)
