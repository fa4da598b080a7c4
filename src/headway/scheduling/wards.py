"""Requests that may kill the engine, by group: each group is computed in steps of its own until it is past the position
where an engine died."""

from collections.abc import Sequence as Groups

from headway.scheduling.sequence import Sequence


class Wards:
    """Wards count from 1; 0 is where everybody else is. A sequence is watched from its arrival until it is cleared."""

    def __init__(self, groups: Groups[Groups[tuple[int, int]]]) -> None:
        """Of each group (id, position that clears it when it is computed)."""
        self._of = {id: (ward, end) for ward, group in enumerate(groups, 1) for id, end in group}
        self._watched: dict[int, dict[int, Sequence]] = {}  # ward -> live sequences
        self._last = 0
        self._normal = True  # the last step was everybody else's

    @property
    def count(self) -> int:
        """Sequences under watch."""
        return sum([len(ward) for ward in self._watched.values()])

    @property
    def groups(self) -> int:
        """Wards with somebody in them."""
        return len(self._watched)

    def enter(self, sequence: Sequence) -> None:
        """A newcomer, who may be one of them."""
        found = self._of.pop(sequence.id, None)
        if found is not None:
            sequence.ward, sequence.ward_end = found
            self._watched.setdefault(sequence.ward, {})[sequence.id] = sequence

    def leave(self, sequence: Sequence) -> None:
        """It is cleared, or has ended."""
        if sequence.ward:
            ward = self._watched[sequence.ward]
            del ward[sequence.id]
            if not ward:
                del self._watched[sequence.ward]
            sequence.ward = 0

    def turn(self) -> int:
        """The ward whose step is next, 0 for everybody else's: they alternate."""
        if not self._watched:
            return 0
        self._normal = not self._normal
        if self._normal:
            return 0
        return self.another()

    def another(self) -> int:
        """The ward after the last one; 0 if there is none."""
        later = [ward for ward in self._watched if ward > self._last]
        self._last = min(later, default=min(self._watched, default=0))
        return self._last

    def members(self, ward: int) -> list[Sequence]:
        """Those of the first lane first, for flex has to wait for them; then the oldest."""
        return sorted(self._watched.get(ward, {}).values(), key=lambda s: (s.lane, s.order))
