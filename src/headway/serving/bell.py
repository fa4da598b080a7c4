"""Wakes a task that waits for news."""

import asyncio


class Bell:
    """For one task. Rung while nobody waits, it is heard at the next wait; rung several times, once."""

    __slots__ = ("_loop", "_rung", "_waiter")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiter: asyncio.Future[None] | None = None
        self._rung = False

    def ring(self) -> None:
        if self._waiter is None:
            self._rung = True
        elif not self._waiter.done():
            self._waiter.set_result(None)

    async def wait(self) -> None:
        if self._rung:
            self._rung = False
            return
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None
