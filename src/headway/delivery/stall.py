"""Cuts connections whose reader takes nothing: what waits for it must not be kept for good."""

import asyncio
import logging

from headway.delivery.connection_limits import ConnectionLimits

log = logging.getLogger(__name__)


class Stall(asyncio.Protocol):
    """The part that protocols of HTTP and WebSockets have in common; to stand before uvicorn's class.

    uvicorn closes connections in good order only, which waits until all is sent: without end, if nobody reads.
    """

    transport: asyncio.Transport
    loop: asyncio.AbstractEventLoop
    limits: ConnectionLimits
    _stall: asyncio.TimerHandle | None = None
    _unsent = 0  # bytes, when that was set

    def pause_writing(self) -> None:
        super().pause_writing()
        # From the moment the connection is full. No comment, ping or event moves this: only what the reader takes.
        if self._stall is None:
            self._set_stall()

    def resume_writing(self) -> None:
        super().resume_writing()
        if not self.transport.is_closing():  # else all that is left must go, and not only a part of it
            self._unset_stall()

    def connection_lost(self, exc: Exception | None) -> None:
        self._unset_stall()
        super().connection_lost(exc)

    def linger(self) -> None:
        """To be called when it has been closed: what is not sent by then has as long as a stall."""
        if self._stall is None and self.transport.get_write_buffer_size():
            self._set_stall()

    def drop(self) -> None:
        """Ends the connection, and with it all that is made for it; what has not been sent is lost."""
        self.transport.abort()

    def _set_stall(self) -> None:
        self._unsent = self.transport.get_write_buffer_size()
        self._stall = self.loop.call_later(self.limits.stall_s, self._stalled)

    def _stalled(self) -> None:
        self._stall = None
        if self.transport.get_write_buffer_size() < self._unsent:  # slow, but it reads
            self._set_stall()
            return
        log.info("a reader takes nothing for %g s: its connection is cut", self.limits.stall_s)
        self.drop()

    def _unset_stall(self) -> None:
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None
