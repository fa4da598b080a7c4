"""Finds stop strings in text that arrives in pieces, however the pieces are cut."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Match:
    """A stop string of `length` characters ended `after` characters into the piece."""

    after: int
    length: int


class StopStrings:
    """One Knuth-Morris-Pratt automaton per stop string, fed character by character.

    So the answer does not depend on how the text was cut into pieces, and a character costs amortised constant time
    even for hostile strings. The match that completes first wins; of several completing together, the longest.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._failures = [_failure(stop) for stop in self._stops]
        self._states = [0] * len(self._stops)

    @property
    def held(self) -> int:
        """Characters at the end of the text so far that may turn out to begin a stop string."""
        return max(self._states, default=0)

    def push(self, piece: str) -> Match | None:
        """Takes the next piece; after a match the object is spent."""
        best: Match | None = None
        for index, stop in enumerate(self._stops):
            end = len(piece) if best is None else best.after
            after = self._advance(index, piece[:end])
            if after is None:
                continue
            if best is None or after < best.after or len(stop) > best.length:
                best = Match(after, len(stop))
        return best

    def _advance(self, index: int, piece: str) -> int | None:
        stop, failure, state = self._stops[index], self._failures[index], self._states[index]
        for position, char in enumerate(piece, 1):
            while state and stop[state] != char:
                state = failure[state - 1]
            if stop[state] == char:
                state += 1
            if state == len(stop):
                return position
        self._states[index] = state
        return None


def _failure(stop: str) -> list[int]:
    """For every prefix of `stop`, the length of its longest proper suffix that is also a prefix."""
    table = [0] * len(stop)
    state = 0
    for i in range(1, len(stop)):
        while state and stop[state] != stop[i]:
            state = table[state - 1]
        if stop[state] == stop[i]:
            state += 1
        table[i] = state
    return table
