"""How much KV the running sequences will need before they end, so that nobody is let in only to be thrown out."""

from bisect import bisect_right, insort
from collections import deque
from collections.abc import Iterable

from headway.scheduling.sequence import Sequence

REMEMBERED = 256  # ended sequences
# Until enough have ended: output lengths as chats have them.
PRIOR = (16, 32, 64, 96, 128, 192, 256, 384)
QUANTILE = 0.8  # of the lengths still possible, that a sequence is expected to reach


class Forecast:
    """Learns output lengths, and adds up what is to come (as the Past-Future scheduler does, Gong et al. 2025)."""

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size
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
        """Blocks it is expected to hold at its end."""
        return -(-self.end(sequence) // self._block_size)

    def peak(self, running: Iterable[Sequence], held: int) -> int:
        """The most blocks that `running`, who hold `held` now, will hold at any time: those that end first give theirs
        back before the others have grown."""
        size = self._block_size
        entries = sorted([(self.end(s) - len(s.known), len(s.known)) for s in running], reverse=True)
        tokens = sum([known for _, known in entries])
        shared = held * size / tokens if tokens else 0.0  # below 1 where they share prefixes
        most = float(held)
        stay = 0.0
        for count, (remaining, known) in enumerate(entries, 1):
            stay += known * shared / size
            most = max(most, stay + count * remaining / size)
        return int(most) + 1
