"""The events of one resumable response: made once, kept for a while, and read by whoever comes, from any event on."""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from headway.core.errors import HeadwayError, RequestFailed
from headway.delivery.coalesce import Event
from headway.delivery.http_errors import EventsExpired, as_headway_error
from headway.delivery.merge import Merged
from headway.delivery.openai_format import StreamFormat
from headway.serving.bell import Bell

LONGEST_READ = 64 << 10  # bytes handed out at once, so that a reader of much feels its connection's back-pressure


class RecordedFormat(StreamFormat, Protocol):
    """A format that can be recorded: one of its readers may have to be told what concerns nobody else."""

    def begin(self) -> bytes:
        """The events of a response that waits for its first step; empty: none."""
        ...

    def cut_off(self, error: HeadwayError) -> bytes:
        """The last bytes for one reader who cannot go on."""
        ...


@dataclass(frozen=True, slots=True)
class Terms:
    """How one response is recorded."""

    ids: bool = True  # events carry their number
    background: bool = False  # it begins at once, and goes on to its end whoever reads it
    ended: "Callable[[Recording], None]" = lambda recording: None  # called once, when the last event is there


class Recording:
    """Runs the generations of a response by itself, whether or not anybody reads; `stop` ends that.

    Events are numbered from 1, and each carries its id. Of a response that outgrows its share of the journal the oldest
    events go. All on the event loop.
    """

    def __init__(
        self,
        id: str,
        owner: str,
        digest: bytes,
        events: Merged,
        format: RecordedFormat,
        grew: "Callable[[Recording], None]",
        terms: Terms,
    ) -> None:
        """`owner`: of whose key it is; `digest`: of the request, to know it again; `grew` is called after events
        and at the end."""
        self.id = id
        self.owner = owner
        self.digest = digest
        self.size = 0  # bytes kept
        self.readers: set[asyncio.Task[None]] = set()
        self.listeners: list[Callable[[], None]] = []  # called when there are new events, and must not fail
        self.begun = asyncio.Event()  # its first step has been planned, or it has failed before
        self.refusal: HeadwayError | None = None  # it failed before it had any event
        self.failure: HeadwayError | None = None  # it failed, at any time
        self.ended = False
        self.last = 0  # number of the newest event
        self.known = terms.background  # somebody has got something of it, and with it the id
        self.terms = terms
        self.media_type = format.media_type
        self.keep_alive = format.keep_alive
        self._source = events
        self._format = format
        self._grew = grew
        self._events: deque[bytes] = deque()
        self._stem = b"id: " + id.encode() if terms.ids else b""
        if terms.background:
            self._begin()
        self._task = asyncio.create_task(self._record())
        self._task.add_done_callback(self._end)

    def _begin(self) -> None:
        self._keep(self._format.begin())
        self.begun.set()

    async def _record(self) -> bytes:
        """The last bytes."""
        try:
            async with self._source as events:
                self._take(await events.first())
                await events.run(self._take)
            return self._format.end()
        except Exception as error:
            self.failure = as_headway_error(error)
            if not self.begun.is_set():
                self.refusal = self.failure
            return self._format.failed(self.failure)

    def _take(self, batch: list[Event]) -> None:
        data = b""
        for index, event in batch:  # nearly always one
            data += self._format.event(index, event)
        self._keep(data)
        self.begun.set()

    def _end(self, task: "asyncio.Task[bytes]") -> None:
        self._source.close()  # a task cancelled before its first line has closed nothing
        self.ended = True
        stopped = RequestFailed("the stream was cancelled", code="cancelled")
        self._keep(self._format.failed(stopped) if task.cancelled() else task.result())
        self.begun.set()
        self.terms.ended(self)

    def _keep(self, data: bytes) -> None:
        """Takes what the format made of one event: any number of whole server-sent events."""
        if not data:
            return
        for event in data.split(b"\n\n")[:-1]:
            self.last += 1
            framed = b"%b-%d\n%b\n\n" % (self._stem, self.last, event) if self._stem else event + b"\n\n"
            self._events.append(framed)
            self.size += len(framed)
        for listener in self.listeners:
            listener()
        self._grew(self)

    @property
    def kept(self) -> int:
        """Events that can be read: the newest so many."""
        return len(self._events)

    @property
    def events(self) -> list[bytes]:
        """Those."""
        return list(self._events)

    def forget(self, most: int) -> None:
        """Drops the oldest events until at most so many bytes are kept, or one event."""
        while self.size > most and len(self._events) > 1:
            self.size -= len(self._events.popleft())

    def read(self, after: int) -> tuple[bytes, int]:
        """Events from the one after `after` (at most `last`) on, and the number of the last of them.

        Raises EventsExpired where they are no longer kept.
        """
        skipped = after - (self.last - len(self._events))
        if skipped < 0:
            raise EventsExpired(f"event {after + 1} of this stream is not kept any more", param="after")
        data: list[bytes] = []
        size = 0
        for number in range(skipped, len(self._events)):
            if size >= LONGEST_READ:
                break
            event = self._events[number]
            data.append(event)
            size += len(event)
        return b"".join(data), after + len(data)

    def exhausted(self, after: int) -> bool:
        """Whether no event will ever follow the one of number `after`."""
        return self.ended and after >= self.last

    async def more(self, after: int) -> None:
        """Waits until there is an event after `after`, or the end."""
        await self._until(lambda: self.last > after)

    def failed(self, error: HeadwayError) -> bytes:
        """The last bytes for one reader who cannot go on."""
        return self._format.cut_off(error)

    async def end(self) -> None:
        """Waits for it."""
        await self._until(lambda: False)

    async def _until(self, condition: Callable[[], bool]) -> None:
        if condition() or self.ended:
            return
        bell = Bell()
        self.listeners.append(bell.ring)
        try:
            while not condition() and not self.ended:
                await bell.wait()
        finally:
            self.listeners.remove(bell.ring)

    def stop(self) -> None:
        """Ends the generations, if they have not ended; the readers get what there is and an error."""
        self._task.cancel()

    def drop_readers(self) -> None:
        """Cuts whoever still reads: what is kept goes away."""
        for reader in list(self.readers):
            reader.cancel()
