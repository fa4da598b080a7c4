"""What the caller has been given of an answer, so that a repeated one does not give it twice."""

from typing import Generic, TypeVar, cast

T = TypeVar("T", str, list[int])


class Differs(Exception):
    """A repeated answer is another one."""


class Shown(Generic[T]):
    """Of text, or of token ids."""

    def __init__(self, empty: T) -> None:
        self._given: T = empty  # until the last restart
        self._since: list[T] = []  # pieces since then
        self._again = 0  # of _given, how much the repeated answer has said by now

    @property
    def all(self) -> T:
        if self._since:
            self._given = _joined(self._given, self._since)
            self._since = []
            self._again = len(self._given)
        return self._given

    @property
    def behind(self) -> bool:
        """Whether a repeated answer has not yet said all that was given."""
        return self._again < len(self._given)

    def restart(self) -> None:
        self._given = self.all
        self._again = 0

    def take(self, piece: T) -> T:
        """What of the piece is new. Raises Differs."""
        if not self.behind:
            if piece:
                self._since.append(piece)
            return piece
        known = self._given[self._again : self._again + len(piece)]
        if piece[: len(known)] != known:
            raise Differs
        self._again += len(known)
        fresh = piece[len(known) :]
        if fresh:
            self._since.append(fresh)
        return fresh


def _joined(start: T, pieces: list[T]) -> T:
    if isinstance(start, str):
        return "".join(cast(list[str], [start, *pieces]))
    return cast(T, [*start, *(item for piece in pieces for item in piece)])
