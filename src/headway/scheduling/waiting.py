"""The waiting queue: first come, first served, by arrival."""

from bisect import bisect_left, insort
from collections.abc import Iterator

from headway.scheduling.sequence import Sequence


def _order(sequence: Sequence) -> tuple[float, int]:
    return sequence.order


class WaitingQueue:
    """Sequences without a slot, oldest first.

    Sorted by (arrival, serial) rather than appended to: a preempted sequence, older than all that never ran, finds
    its place at the front by itself, and so does a request that was slow to be tokenised.
    """

    def __init__(self) -> None:
        self._sequences: list[Sequence] = []
        self.tokens = 0  # known tokens, all of them uncomputed

    def __len__(self) -> int:
        return len(self._sequences)

    def __iter__(self) -> Iterator[Sequence]:
        return iter(self._sequences)

    @property
    def head(self) -> Sequence:
        return self._sequences[0]

    def add(self, sequence: Sequence) -> None:
        insort(self._sequences, sequence, key=_order)
        self.tokens += len(sequence.known)

    def remove(self, sequence: Sequence) -> None:
        index = bisect_left(self._sequences, sequence.order, key=_order)
        assert self._sequences[index] is sequence
        del self._sequences[index]
        self.tokens -= len(sequence.known)
