"""Fewer, larger events, for a client that asks for them."""

import asyncio
from collections.abc import Callable

from headway.serving.text_events import AnswerDelta, Delta, TextEvent

Event = tuple[int, TextEvent]  # of a choice


class Coalescer:
    """Joins the text of a choice that comes within `seconds` of its first piece."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._held: dict[int, Delta] = {}
        self._timer: asyncio.TimerHandle | None = None  # rings when what is held is to go out
        self._rung = False
        self.on_due: Callable[[], None] = lambda: None  # called when `due` has something

    def join(self, events: list[Event]) -> list[Event]:
        """What is to go out at once of what has come: an end, and the text before it."""
        out: list[Event] = []
        for index, event in events:
            if isinstance(event, Delta):
                if not self._held:
                    self._timer = asyncio.get_running_loop().call_later(self._seconds, self._ring)
                before = self._held.get(index)
                self._held[index] = event if before is None else _joined(before, event)
            else:
                if index in self._held:
                    out.append((index, self._held.pop(index)))
                out.append((index, event))
        if not self._held:
            self.close()
        return out

    def due(self) -> list[Event]:
        """What has been held for long enough."""
        return self.rest() if self._rung else []

    def rest(self) -> list[Event]:
        """All that is held."""
        self.close()
        held, self._held = self._held, {}
        return list(held.items())

    def _ring(self) -> None:
        self._rung = True
        self.on_due()

    def close(self) -> None:
        self._rung = False
        if self._timer is not None:
            self._timer.cancel()


def _joined(one: Delta, other: Delta) -> Delta:
    logprobs = None if one.logprobs is None or other.logprobs is None else one.logprobs + other.logprobs
    text, ids = one.text + other.text, one.token_ids + other.token_ids
    if isinstance(one, AnswerDelta) and isinstance(other, AnswerDelta):
        return AnswerDelta(text, ids, logprobs, parts=one.parts + other.parts)
    return Delta(text, ids, logprobs)
