"""How much KV the running sequences will need before they end, so that nobody is let in only to be thrown out."""

from bisect import bisect_right, insort
from collections import deque
from collections.abc import Iterable
from math import ceil

from headway.scheduling.sequence import Sequence

REMEMBERED = 256  # ended sequences
# Until enough have ended: output lengths as chats have them.
PRIOR = (16, 32, 64, 96, 128, 192, 256, 384)
QUANTILE = 0.8  # of the lengths still possible, that a sequence is expected to reach


class Forecast:
    """Learns output lengths, and adds up what is to come (as the Past-Future scheduler does, Gong et al. 2025)."""

    def __init__(self, block_size: int, windows: tuple[int, ...] = (0,)) -> None:
        """`windows`: of the layer groups, as RunnerInfo has them."""
        self._block_size = block_size
        self._windows = windows
        self._recent = deque(PRIOR, maxlen=REMEMBERED)
        self._sorted = sorted(PRIOR)

    def observe(self, emitted: int) -> None:
        """A sequence has come to its end by itself."""
        if len(self._recent) == REMEMBERED:
            oldest = self._recent[0]
            del self._sorted[bisect_right(self._sorted, oldest) - 1]
        self._recent.append(emitted)
        insort(self._sorted, emitted)

    def output(self, emitted: int) -> int:
        """The length that one which has emitted so much is expected to reach: a quantile of those that were longer."""
        lengths = self._sorted
        first = bisect_right(lengths, emitted)
        if first == len(lengths):
            return emitted + self._block_size  # longer than all that were seen: it may end any time
        return lengths[first + int(QUANTILE * (len(lengths) - first - 1))]

    def end(self, sequence: Sequence) -> int:
        """Known tokens it is expected to end with."""
        if sequence.endless:
            return sequence.limit
        least = max(self.output(sequence.emitted), sequence.min_tokens)
        return min(sequence.limit, sequence.prompt_length + least)

    def blocks(self, sequence: Sequence) -> int:
        """The most blocks it is expected to hold from now on: at its end, or all that is known when it is let in."""
        known = 0 if sequence.tables else len(sequence.known)
        return max(-(-known // self._block_size), ceil(self._held(self.end(sequence))))

    def peak(self, running: Iterable[Sequence], held: int) -> int:
        """The most blocks that `running`, who hold `held` now, will hold at any time: those that end first give theirs
        back before the others have grown."""
        size = self._block_size
        entries = sorted([(self.end(s) - len(s.known), len(s.known)) for s in running], reverse=True)
        tokens = sum([known for _, known in entries])
        shared = held * size / tokens if tokens else 0.0  # below 1 where they share prefixes
        windowed = any(self._windows)
        most = float(held)
        stay = growing = 0.0
        for remaining, known in entries:
            stay += known * shared / size
            growing += self._growth(known, remaining) if windowed else 1.0
            most = max(most, stay + growing * remaining / size)
        return int(most) + 1

    def _held(self, tokens: int) -> float:
        """Blocks, one in each group, that hold what the layers still see of so many computed tokens."""
        blocks, size = -(-tokens // self._block_size), self._block_size
        held = [min(blocks, (window - 1) // size + 2) if window else blocks for window in self._windows]
        return sum(held) / len(held)

    def _growth(self, known: int, more: int) -> float:
        """Of a block, what each block full of tokens adds, over so many more."""
        return (self._held(known + more) - self._held(known)) * self._block_size / more if more > 0 else 1.0
