"""Several generations read as one sequence of (choice index, event)."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from types import TracebackType
from typing import Self

from headway.core.errors import HeadwayError
from headway.delivery.coalesce import Coalescer, Event
from headway.serving.bell import Bell
from headway.serving.generation import Generation

MOST_TAKEN = 64  # steps of a generation at once, so that a reader of many feels its connection's back-pressure


class Merged:
    """The generations of one response. Use with `async with`: leaving ends them all; one failure fails the response.

    From `run` on no task is woken for a token: what the engine's message brings is passed on while that is taken apart.
    A reader that has paused is bounded by each generation's own buffer."""

    def __init__(self, generations: Sequence[Generation], coalesce_s: float = 0.0) -> None:
        """`coalesce_s`: what a choice gets within so long may come as one event."""
        self._generations = generations
        self._live = list(enumerate(generations))  # that may have events yet
        self._coalescer = Coalescer(coalesce_s) if coalesce_s else None
        self._take = self._read if self._coalescer is None else partial(self._coalesced, self._coalescer)
        self._consume: Callable[[list[Event]], None] = lambda events: None
        self._over: asyncio.Future[None] | None = None
        self._paused = False
        self._more = False  # not all there was has been read
        self._failure: HeadwayError | None = None  # what ends the response, after the events that were read

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
        for generation in self._generations:
            generation.close("disconnect")

    async def first(self) -> list[Event]:
        """Starts all, and waits for what comes first. Raises the HeadwayError of one that cannot be served."""
        if len(self._generations) == 1:
            await self._generations[0].prepare()
        else:  # none begins before all are known to be possible
            await asyncio.gather(*[g.prepare() for g in self._generations if g.leader is None])
            await asyncio.gather(*[g.prepare() for g in self._generations if g.leader is not None])
        bell = Bell()
        for generation in self._generations:
            generation.start(bell.ring)
        while not (events := self._take()):
            if self._failure is not None:
                raise self._failure
            await bell.wait()
        return events

    async def run(self, consume: Callable[[list[Event]], None]) -> None:
        """Has `consume` take what follows the first events, as it comes, to the end. Raises the HeadwayError of the
        first generation that fails, or what `consume` raises."""
        self._consume = consume
        self._over = asyncio.get_running_loop().create_future()
        if self._coalescer is not None:
            self._coalescer.on_due = self._news
        for generation in self._generations:
            generation.listen(self._news)
        self._news()
        await self._over

    def pause(self) -> None:
        """Has `consume` left alone until `resume`; it may call this."""
        self._paused = True

    def resume(self) -> None:
        self._paused = False
        self._news()

    def _news(self) -> None:
        over = self._over
        if self._paused or over is None or over.done():
            return
        try:
            while True:
                if events := self._take():
                    self._consume(events)
                if self._paused or not self._more:
                    break
            if self._failure is not None:
                over.set_exception(self._failure)
            elif not self._live:
                over.set_result(None)
        except Exception as error:
            over.set_exception(error)

    def _coalesced(self, coalescer: Coalescer) -> list[Event]:
        """What may go out now of what there is."""
        out = [*coalescer.due(), *coalescer.join(self._read())]
        return out if self._failure is None else [*out, *coalescer.rest()]

    def _read(self) -> list[Event]:
        """What there is, of some steps at least, until the first failure."""
        events: list[Event] = []
        ended = self._more = False
        for index, generation in self._live:
            for event in generation.take(MOST_TAKEN):
                events.append((index, event))
            if generation.more:
                self._more = True
            if generation.ended:
                ended = True
                if generation.error is not None:
                    self._failure = generation.error
                    self._more = False
                    break
        if ended:
            self._live = [(index, generation) for index, generation in self._live if not generation.ended]
        return events
