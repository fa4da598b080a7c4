"""The events of one HTTP answer, and all the ways in which it can break off."""

import asyncio
from collections import deque
from contextlib import suppress

import httpx
import msgspec

from headway.client.answer import Chunk
from headway.client.deadline import Deadline
from headway.client.errors import DeadlineExceeded, StreamFailed
from headway.client.sse import Event, EventTooLarge, SseParser
from headway.client.transport import error_fields, reason_of

DRAIN_S = 0.2


class Dropped(Exception):
    """The stream broke off; its text says how. Caught inside the library."""


class EventReader:
    """Owns the response. Any byte is a sign of life, comments included."""

    def __init__(self, response: httpx.Response, deadline: Deadline, silence_s: float) -> None:
        self._response = response
        self._bytes = response.aiter_bytes()
        self._deadline = deadline
        self._silence_s = silence_s
        self._parser = SseParser()
        self._events: deque[Event] = deque()

    async def next(self) -> Event | None:
        """None: the body ended as HTTP says. Raises Dropped, DeadlineExceeded, StreamFailed."""
        while not self._events:
            try:
                async with self._deadline.limit(self._silence_s):
                    data = await anext(self._bytes, None)
            except TimeoutError:
                raise Dropped(f"silent for {self._silence_s:g} s") from None
            except httpx.RequestError as error:
                raise Dropped(reason_of(error)) from error
            if data is None:
                return None
            try:
                self._events.extend(self._parser.feed(data))
            except EventTooLarge as error:
                raise StreamFailed(str(error), code="event_too_large") from None
        return self._events.popleft()

    async def drain(self) -> None:
        """After the last event: reads the end of the body, if it comes at once, so that the connection can serve
        again."""
        with suppress(TimeoutError, httpx.RequestError):
            async with asyncio.timeout(DRAIN_S):
                while await anext(self._bytes, None) is not None:
                    pass

    async def close(self) -> None:
        await self._response.aclose()


def chunk_of(event: Event) -> Chunk:
    """Raises what an error event says: StreamFailed or DeadlineExceeded."""
    try:
        chunk = msgspec.json.decode(event.data)
    except (msgspec.DecodeError, RecursionError):
        chunk = None
    if not isinstance(chunk, dict):
        raise StreamFailed(f"the stream has an event that is no JSON object: {event.data[:100]!r}")
    if chunk.get("error") or event.name == "error":
        fields = error_fields(event.data)
        message = fields["message"] or "the server ended the stream with an error"
        if fields["code"] == DeadlineExceeded.code:
            raise DeadlineExceeded(message)
        raise StreamFailed(message, code=fields["code"], param=fields["param"])
    return chunk
