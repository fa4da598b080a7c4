"""The engine's emissions for one request, between the socket and the task that reads them."""

import asyncio
from collections import deque
from collections.abc import Callable

from headway.core.errors import HeadwayError, RequestFailed
from headway.core.events import Emission


class EmissionStream:
    """A bounded buffer with one reader. A reader that falls behind by more than `limit` loses its request, alone."""

    __slots__ = ("_buffer", "_cancel", "_error", "_limit", "_loop", "_waiter", "closed", "id", "on_overflow")

    def __init__(self, id: int, limit: int, cancel: Callable[[str], None]) -> None:
        self.id = id
        self._limit = limit
        self._loop = asyncio.get_running_loop()
        self._cancel = cancel
        self._buffer: deque[Emission] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._error: HeadwayError | None = None
        self.closed = False  # the engine has ended the request, or has been told to
        self.on_overflow: Callable[[], None] | None = None

    def put(self, emission: Emission) -> None:
        if self._error is not None:
            return
        self._buffer.append(emission)
        if emission.finish is not None:
            self.closed = True
        elif len(self._buffer) > self._limit:
            self._buffer.clear()
            self.fail(RequestFailed("the reader of this stream is too slow", code="slow_reader"))
            self.close("slow reader")
            if self.on_overflow is not None:
                self.on_overflow()
            return
        self._wake()

    def fail(self, error: HeadwayError) -> None:
        """What is buffered is still read; then the error is raised."""
        self._error = error
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def take(self) -> Emission | None:
        """The next emission if it is already here."""
        return self._buffer.popleft() if self._buffer else None

    async def get(self) -> Emission:
        """The next emission. Raises the error the stream failed with."""
        while not self._buffer:
            if self._error is not None:
                raise self._error
            self._waiter = self._loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        return self._buffer.popleft()

    def close(self, reason: str) -> None:
        """Cancels the request in the engine unless it has ended; the first call only."""
        if not self.closed:
            self.closed = True
            self._cancel(reason)
