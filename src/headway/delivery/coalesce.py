"""Fewer, larger events, for a client that asks for them."""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

from headway.serving.text_events import AnswerDelta, Delta, TextEvent

Event = tuple[int, TextEvent]  # of a choice


class Coalescer:
    """The events that `read` gives, with the text of a choice joined that comes within `seconds` of its first piece."""

    def __init__(self, read: Callable[[], Coroutine[Any, Any, Event]], seconds: float) -> None:
        self._read = read
        self._seconds = seconds
        self._held: dict[int, Delta] = {}
        self._due = 0.0  # loop time at which what is held goes out
        self._ready: deque[Event] = deque()
        self._coming: asyncio.Task[Event] | None = None
        self._end: Exception | None = None

    async def next(self) -> Event:
        """Raises what `read` raises at its end, once all is out."""
        while not self._ready:
            if self._end is not None:
                raise self._end
            await self._take()
        return self._ready.popleft()

    async def _take(self) -> None:
        loop = asyncio.get_running_loop()
        self._coming = self._coming or asyncio.create_task(self._read())
        await asyncio.wait((self._coming,), timeout=max(0.0, self._due - loop.time()) if self._held else None)
        if not self._coming.done():
            self._let_out()
            return
        coming, self._coming = self._coming, None
        try:
            index, event = coming.result()
        except Exception as end:
            self._let_out()
            self._end = end
            return
        if isinstance(event, Delta):
            self._due = self._due if self._held else loop.time() + self._seconds
            before = self._held.get(index)
            self._held[index] = event if before is None else _joined(before, event)
        else:
            if index in self._held:
                self._ready.append((index, self._held.pop(index)))
            self._ready.append((index, event))

    def _let_out(self) -> None:
        self._ready += self._held.items()
        self._held = {}

    def close(self) -> None:
        if self._coming is not None:
            self._coming.cancel()


def _joined(one: Delta, other: Delta) -> Delta:
    logprobs = None if one.logprobs is None or other.logprobs is None else one.logprobs + other.logprobs
    text, ids = one.text + other.text, one.token_ids + other.token_ids
    if isinstance(one, AnswerDelta) and isinstance(other, AnswerDelta):
        return AnswerDelta(text, ids, logprobs, parts=one.parts + other.parts)
    return Delta(text, ids, logprobs)
