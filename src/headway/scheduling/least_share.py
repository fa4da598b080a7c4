"""What a lane is owed while the lanes before it could use everything, so that nobody starves."""

from headway.core.lane import Lane
from headway.scheduling.pace import LEAST_CHUNK

MOST_OWED = 4 * LEAST_CHUNK  # tokens, or what one step owes: a lane does not get all that it missed at once


class LeastShare:
    """Tokens owed by lane: a share of what the lanes before it got while it had work, less what it got itself."""

    def __init__(self, budget: int) -> None:
        self.share = 0.0
        self._budget = budget
        self._owed = [0.0 for _ in Lane]

    def due(self, lane: Lane) -> int:
        """Tokens that the lane gets before the others; 0 until they are a piece of a prompt."""
        owed = self._owed[lane]
        return int(owed) if owed >= LEAST_CHUNK else 0

    def full(self, lane: Lane) -> bool:
        """Whether it is owed as much as it can be: it could not use what it was due."""
        return self._owed[lane] >= self._most

    def settle(self, got: list[int], busy: list[bool]) -> None:
        """One step gave `got` tokens to each lane; `busy`: which have work."""
        before = got[Lane.PRIORITY]
        for lane in (Lane.DEFAULT, Lane.FLEX):
            owed = self._owed[lane] + self.share * before - got[lane]
            self._owed[lane] = min(self._most, max(0.0, owed)) if busy[lane] else 0.0
            before += got[lane]

    @property
    def _most(self) -> float:
        return max(MOST_OWED, self.share * self._budget)
