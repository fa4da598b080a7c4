"""Breaks the silence of a stream, so that no proxy on the way takes it for dead."""

import asyncio

from starlette.types import Send


class KeepAlive:
    """Sends `comment` whenever the stream has been silent for `seconds`, by the wall clock and from its own task.

    Its timer is not moved with every event, which would cost more than the event: when it rings it looks at the time
    of the last one.
    """

    def __init__(self, comment: bytes, seconds: float, send: Send) -> None:
        self._message = {"type": "http.response.body", "body": comment, "more_body": True}
        self._seconds = seconds
        self._send = send
        self._loop = asyncio.get_running_loop()
        self._time = self._loop.time
        self._last = self._time()
        self._task: asyncio.Task[None] | None = None
        self._timer = self._loop.call_later(seconds, self._ring) if comment else None

    def sent(self) -> None:
        """The stream has sent something itself."""
        self._last = self._time()

    def _ring(self) -> None:
        now = self._time()
        if now - self._last >= self._seconds:
            if self._task is None or self._task.done():  # a reader that takes nothing needs no second comment
                self._task = self._loop.create_task(self._break())
            self._last = now
        self._timer = self._loop.call_later(self._last + self._seconds - now, self._ring)

    async def _break(self) -> None:
        await self._send(self._message)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
