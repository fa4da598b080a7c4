"""What the engine is doing, in memory that outlives it: there its parent sees whether it hangs, and who was in its last
step.

One writer, the engine, and one reader, the parent. All values are aligned words of eight bytes, each written at once;
that several belong together matters only to who reads them after the writer's death.
"""

import mmap
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple, Self

BEAT, ALLOWED = 0, 1  # Clock seconds of the last sign of life, and seconds until the next
STEPS, MEMBERS = 2, 3  # steps completed, and sequences in the one that is being computed
WARD, WATCHED = 4, 5  # whose step that is (see `Wards`), and sequences that are in wards
FIRST = 6
MOST = 4096  # sequences in a step, as engine.max_sequences
SIZE = 8 * (FIRST + 3 * MOST)


class Member(NamedTuple):
    """A sequence's part in a step."""

    id: int
    start: int  # position of its first token there
    tokens: int


class StepBoard:
    """A small file in memory."""

    def __init__(self, path: Path) -> None:
        """Raises OSError."""
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), SIZE)
        view = memoryview(self._map)
        self._times = view.cast("d")
        self._words = view.cast("Q")

    @classmethod
    def make(cls, path: Path) -> Self:
        path.write_bytes(bytes(SIZE))
        return cls(path)

    # The engine writes.

    def beat(self, now: float, allowed_s: float) -> None:
        """The next beat follows within `allowed_s`."""
        self._times[ALLOWED] = allowed_s
        self._times[BEAT] = now

    def begin(self, members: Iterable[tuple[int, int, int]], ward: int, watched: int) -> None:
        """These are computed from now on."""
        self._words[WARD], self._words[WATCHED] = ward, watched
        at, words = FIRST, self._words
        for id, start, count in members:
            words[at], words[at + 1], words[at + 2] = id, start, count
            at += 3
        words[MEMBERS] = (at - FIRST) // 3

    def end(self) -> None:
        """They are computed."""
        self._words[MEMBERS] = 0
        self._words[STEPS] += 1

    # The parent reads.

    def clear(self) -> None:
        """For the next engine."""
        self._map[:] = bytes(SIZE)

    def overdue(self, now: float) -> float:
        """Seconds by which a beat is late; 0 before the first."""
        beat = self._times[BEAT]
        return max(0.0, now - beat - self._times[ALLOWED]) if beat else 0.0

    @property
    def steps(self) -> int:
        return self._words[STEPS]

    @property
    def members(self) -> list[Member]:
        """Of the step that was begun and not ended."""
        count = min(self._words[MEMBERS], MOST)
        words = self._words[FIRST : FIRST + 3 * count].tolist()
        return [Member(*words[i : i + 3]) for i in range(0, len(words), 3)]

    @property
    def ward(self) -> int:
        """Theirs."""
        return self._words[WARD]

    @property
    def watched(self) -> int:
        """Sequences in wards."""
        return self._words[WATCHED]

    def close(self) -> None:
        self._times.release()
        self._words.release()
        self._map.close()
