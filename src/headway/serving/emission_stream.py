"""The engine's emissions for one request, between the socket and the task that reads them."""

from collections import deque
from collections.abc import Callable

from headway.core.errors import HeadwayError, RequestFailed
from headway.core.events import Emission


class EmissionStream:
    """A bounded buffer with one reader. A reader that falls behind by more than `limit` loses its request, alone."""

    __slots__ = ("_buffer", "_cancel", "_limit", "closed", "error", "id", "on_news", "on_overflow")

    def __init__(self, id: int, limit: int, cancel: Callable[[str], None]) -> None:
        self.id = id
        self._limit = limit
        self._cancel = cancel
        self._buffer: deque[Emission] = deque()
        self.error: HeadwayError | None = None  # with which it failed, after what is buffered
        self.closed = False  # the engine has ended the request, or has been told to
        self.on_news: Callable[[], None] = lambda: None  # called when there is something to take
        self.on_overflow: Callable[[], None] | None = None

    def put(self, emission: Emission) -> None:
        if self.error is not None:
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
        self.on_news()

    def fail(self, error: HeadwayError) -> None:
        self.error = error
        self.on_news()

    def take(self, most: int) -> list[Emission]:
        """The oldest of what is here."""
        buffer = self._buffer
        if len(buffer) > most:
            return [buffer.popleft() for _ in range(most)]
        taken = list(buffer)
        buffer.clear()
        return taken

    def close(self, reason: str) -> None:
        """Cancels the request in the engine unless it has ended; the first call only."""
        if not self.closed:
            self.closed = True
            self._cancel(reason)
