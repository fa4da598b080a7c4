"""Several generations read as one sequence of (choice index, event)."""

import asyncio
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

from headway.delivery.coalesce import Coalescer
from headway.serving.generation import Generation
from headway.serving.text_events import TextEvent

LOOKAHEAD = 64  # events read ahead of a slow reader; behind that, each generation's own bound applies


class Merged:
    """The generations of one response. Use with `async with`: leaving ends them all; one failure fails the response."""

    def __init__(self, generations: Sequence[Generation], coalesce_s: float = 0.0) -> None:
        """`coalesce_s`: what a choice gets within so long may come as one event."""
        self._generations = generations
        self._coalescer = Coalescer(self._read, coalesce_s) if coalesce_s else None
        self._queue: asyncio.Queue[tuple[int, TextEvent] | Exception | None] = asyncio.Queue(LOOKAHEAD)
        self._pumps: list[asyncio.Task[None]] = []
        self._open = len(generations)

    def on_overflow(self, callback: Callable[[], None]) -> None:
        for generation in self._generations:
            generation.on_overflow(callback)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        if self._coalescer is not None:
            self._coalescer.close()
        for pump in self._pumps:
            pump.cancel()
        for generation in self._generations:
            generation.close("disconnect")

    async def _start(self) -> None:
        # One that cannot be served fails the response before any has begun.
        await asyncio.gather(*[g.prepare() for g in self._generations if g.leader is None])
        await asyncio.gather(*[g.prepare() for g in self._generations if g.leader is not None])
        self._pumps = [asyncio.create_task(self._pump(i, g)) for i, g in enumerate(self._generations)]

    async def _pump(self, index: int, generation: Generation) -> None:
        try:
            async for event in generation:
                await self._queue.put((index, event))
            await self._queue.put(None)
        except Exception as error:
            await self._queue.put(error)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> tuple[int, TextEvent]:
        return await (self._coalescer.next() if self._coalescer else self._read())

    async def _read(self) -> tuple[int, TextEvent]:
        if len(self._generations) == 1:  # no task, no queue
            return 0, await self._generations[0].__anext__()
        if not self._pumps:
            await self._start()
        while self._open:
            item = await self._queue.get()
            if isinstance(item, Exception):
                raise item
            if item is not None:
                return item
            self._open -= 1
        raise StopAsyncIteration
