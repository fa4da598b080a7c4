"""The running set: sequences that hold a slot and blocks."""

from bisect import insort
from collections.abc import Iterator

from headway.core.lane import Lane
from headway.scheduling.blocks import KvBlocks
from headway.scheduling.sequence import Sequence


def _order(sequence: Sequence) -> tuple[float, int]:
    return sequence.order


class RunningSet:
    """Oldest first. Owns the slots; the one place where a running sequence's slot and blocks are given back."""

    def __init__(self, blocks: KvBlocks, capacity: int) -> None:
        self.blocks = blocks
        self.capacity = capacity
        self.sequences: list[Sequence] = []
        self.flex: list[Sequence] = []  # those of the flex lane
        self.counts = [0 for _ in Lane]
        self.limits = 0  # tokens, if each grew as long as it may
        self._slots = list(range(capacity - 1, -1, -1))

    def __len__(self) -> int:
        return len(self.sequences)

    def __iter__(self) -> Iterator[Sequence]:
        return iter(self.sequences)

    @property
    def full(self) -> bool:
        return not self._slots

    @property
    def interactive(self) -> int:
        return self.counts[Lane.PRIORITY] + self.counts[Lane.DEFAULT]

    def open(self, sequence: Sequence) -> int:
        """Gives it a slot and its place by age; its blocks it has."""
        slot = sequence.slot = self._slots.pop()
        insort(self.sequences, sequence, key=_order)
        if sequence.lane is Lane.FLEX:
            insort(self.flex, sequence, key=_order)
        self.counts[sequence.lane] += 1
        self.limits += sequence.limit
        return slot

    def remove(self, sequence: Sequence) -> None:
        """Takes its slot and blocks."""
        self.sequences.remove(sequence)
        self._free(sequence)

    def sweep(self) -> None:
        """Frees what ended sequences hold."""
        for sequence in self.sequences:
            if sequence.finish is not None:
                self._free(sequence)
        self.sequences[:] = [s for s in self.sequences if s.slot is not None]

    def _free(self, sequence: Sequence) -> None:
        assert sequence.slot is not None
        self._slots.append(sequence.slot)
        if sequence.lane is Lane.FLEX:
            self.flex.remove(sequence)
        self.counts[sequence.lane] -= 1
        self.limits -= sequence.limit
        self.blocks.release(sequence)

    def check_integrity(self) -> None:
        """Asserts every invariant that holds between steps."""
        orders = [s.order for s in self.sequences]
        assert orders == sorted(orders) and len(orders) <= self.capacity
        used = [s.slot for s in self.sequences if s.slot is not None]
        assert sorted(self._slots + used) == list(range(self.capacity))
        assert self.counts == [sum(s.lane is lane for s in self.sequences) for lane in Lane]
        assert self.flex == [s for s in self.sequences if s.lane is Lane.FLEX]
        assert self.limits == sum(s.limit for s in self.sequences)
