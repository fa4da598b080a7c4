"""All resumable responses of one API worker: who may read them, how long they are kept, and in how much memory."""

import asyncio
from collections.abc import Callable
from functools import partial

from headway.core.config import Settings
from headway.core.errors import Overloaded
from headway.delivery.http_errors import NoSuchStream
from headway.delivery.merge import Merged
from headway.delivery.recording import RecordedFormat, Recording, Terms
from headway.observability.metrics import Metrics

LARGEST_SHARE = 8  # of the journal, one response may have so much: 1/8
FULL_RETRY_S = 5.0


class Recordings:
    """The journal. Bounded by `server.journal_mb`: responses that have ended make room, the oldest first; then live
    ones lose their oldest events."""

    def __init__(self, settings: Callable[[], Settings], metrics: Metrics) -> None:
        self._settings = settings
        self._metrics = metrics
        self._kept: dict[str, Recording] = {}  # the oldest first
        self._timers: dict[str, asyncio.TimerHandle] = {}  # of those that nobody reads, or that have ended
        self._size = 0  # bytes, of all events
        self._counted: dict[str, int] = {}  # of each one's, as far as counted in `_size`

    def open(
        self, id: str, owner: str, digest: bytes, events: Merged, format: RecordedFormat, terms: Terms | None = None
    ) -> Recording:
        """Starts to record. Raises Overloaded, and closes `events`, while live streams have the whole journal."""
        if not self._make_room():
            events.close()
            raise Overloaded(
                "too many resumable streams are live; try again, or without stream_options.resumable or store",
                retry_after_s=FULL_RETRY_S,
            )
        recording = Recording(id, owner, digest, events, format, self._grew, terms or Terms())
        self._kept[id] = recording
        self._counted[id] = 0
        return recording

    def find(self, id: str, owner: str) -> Recording:
        """Raises NoSuchStream, also for somebody else's."""
        recording = self._kept.get(id)
        if recording is None or recording.owner != owner:
            raise NoSuchStream("there is no such stream, or it is not kept any more")
        return recording

    def enter(self, recording: Recording, reader: "asyncio.Task[None]") -> None:
        """Somebody reads: it goes on."""
        recording.readers.add(reader)
        if not recording.ended:
            self._clear(recording.id)

    def leave(self, recording: Recording, reader: "asyncio.Task[None]") -> None:
        """The same has gone, before the end or at it: with the last reader of a live one the promise decides."""
        recording.readers.discard(reader)
        if recording.readers or recording.id not in self._kept:
            return
        if not recording.known:  # nobody could ask for it again
            self.remove(recording)
        if recording.ended:
            return
        promise = self._settings().promise
        if recording.terms.background:
            return
        if promise.on_stream_drop == "cancel":
            self.remove(recording)
        elif promise.on_stream_drop == "resume":
            self._after(promise.resume_s, recording)

    def remove(self, recording: Recording) -> None:
        """Ends it, and forgets it."""
        self._clear(recording.id)
        if self._kept.pop(recording.id, None) is not None:
            self._resize(-self._counted.pop(recording.id))
        recording.stop()
        recording.drop_readers()

    def _grew(self, recording: Recording) -> None:
        if recording.id not in self._kept:
            return
        budget = self._settings().server.journal_mb << 20
        recording.forget(budget // LARGEST_SHARE)
        self._count(recording)
        if self._size > budget and not self._make_room():
            recording.forget(max(0, recording.size - (self._size - budget)))
            self._count(recording)
        if recording.ended:
            self._after(self._settings().server.journal_s, recording)

    def _count(self, recording: Recording) -> None:
        self._resize(recording.size - self._counted[recording.id])
        self._counted[recording.id] = recording.size

    def _resize(self, change: int) -> None:
        self._size += change
        self._metrics.journal(change)

    def _make_room(self) -> bool:
        budget = self._settings().server.journal_mb << 20
        over = [r for r in self._kept.values() if r.ended and not r.readers] if self._size >= budget else []
        for recording in over:
            if self._size < budget:
                break
            self.remove(recording)
        return self._size < budget

    def _after(self, seconds: float, recording: Recording) -> None:
        self._clear(recording.id)
        loop = asyncio.get_running_loop()
        self._timers[recording.id] = loop.call_later(seconds, partial(self.remove, recording))

    def _clear(self, id: str) -> None:
        timer = self._timers.pop(id, None)
        if timer is not None:
            timer.cancel()

    def close(self) -> None:
        """Ends and forgets all; at the worker's end."""
        for recording in list(self._kept.values()):
            self.remove(recording)
