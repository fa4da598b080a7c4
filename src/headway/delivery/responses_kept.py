"""Responses that can be asked for again: while they are made, from memory; then from the store."""

import asyncio
import logging
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from headway.core.config import ServerSettings
from headway.core.errors import InvalidRequest
from headway.delivery.caller import caller_of
from headway.delivery.http_errors import EventsExpired, NoSuchResponse
from headway.delivery.merge import Merged
from headway.delivery.peers import Peers
from headway.delivery.recorded_reply import RecordedReply
from headway.delivery.recording import Recording, Terms
from headway.delivery.recordings import Recordings
from headway.delivery.reply import stream_head
from headway.delivery.responses_events import ResponseEvents
from headway.delivery.responses_items import Item
from headway.delivery.responses_store import ResponsesStore, Stored
from headway.delivery.stream_id import worker_of

log = logging.getLogger(__name__)

SETTLE_S = 0.02  # between two looks at what another worker is about to store
SETTLE_TRIES = 100


@dataclass(slots=True)
class Live:
    """A response that is being made here, or has been and is not yet stored."""

    recording: Recording
    events: ResponseEvents
    items: list[Item]
    deleted: bool = False

    @property
    def ended(self) -> bool:
        return self.recording.ended

    @property
    def response(self) -> bytes:
        """JSON, as it is now."""
        return self.events.snapshot()


class KeptResponses:
    """Of one API worker."""

    def __init__(self, recordings: Recordings, peers: Peers, store: ResponsesStore, settings: ServerSettings) -> None:
        self._recordings = recordings
        self._peers = peers
        self._store = store
        self._settings = settings
        self._live: dict[str, Live] = {}
        self._writes: set[asyncio.Task[None]] = set()

    @property
    def possible(self) -> bool:
        """Whether there is a store."""
        return self._store.opened

    async def keep(
        self, key: str, generations: Merged, events: ResponseEvents, items: list[Item], background: bool, early: bool
    ) -> Recording:
        """Starts to make one. `early`: its id is told before it ends. Raises Overloaded."""
        id = events.response.id
        terms = Terms(ids=False, background=background, ended=self._ended)
        recording = self._recordings.open(id, key, b"", generations, events, terms)
        live = self._live[id] = Live(recording, events, items)
        if background:  # its maker is told at once, and may be gone when it ends
            try:
                await self._store.begin(Stored(id, key, live.response, items))
            except BaseException:
                live.deleted = True
                self._recordings.remove(recording)
                raise
        elif early:
            self._write(self._store.begin(Stored(id, key, live.response, items)))
        return recording

    async def keep_whole(self, stored: Stored) -> None:
        """Keeps one that is over when it begins."""
        await self._store.finish(stored)

    def _ended(self, recording: Recording) -> None:
        live = self._live[recording.id]
        failed = live.events.response.status in ("failed", "cancelled")
        if live.deleted or (failed and not recording.known):  # nobody has its id
            del self._live[recording.id]
            self._write(self._store.delete(recording.id))
        else:
            self._write(self._finish(recording, live))

    async def _finish(self, recording: Recording, live: Live) -> None:
        first = recording.last - recording.kept
        stored = Stored(recording.id, recording.owner, live.response, live.items, recording.events, first)
        try:
            await self._store.finish(stored)
        finally:
            self._live.pop(recording.id, None)
        if not recording.readers:  # the store has it: the journal needs it no more
            self._recordings.remove(recording)

    def _write(self, work: Coroutine[Any, Any, None]) -> None:
        async def logged() -> None:
            try:
                await work
            except Exception as error:
                log.error("a response could not be stored: %s", error)

        task = asyncio.create_task(logged())
        self._writes.add(task)
        task.add_done_callback(self._writes.discard)

    async def locate(self, request: Request, id: str) -> Live | Stored | Response:
        """The response of this id, or the answer of the worker that makes it. Raises NoSuchResponse."""
        key = caller_of(request).key
        live = self._find_live(id, key)
        if live is not None:
            return live
        stored = await self._store.find(id, key)
        if stored is not None and stored.ended:
            return stored
        worker = worker_of(id)
        if worker is not None and self._peers.other(worker):
            return await self._peers.forward(request, worker, self._settings.max_body_bytes)
        if stored is None:
            raise NoSuchResponse("there is no such response, or it is not stored any more")
        return stored

    def _find_live(self, id: str, key: str) -> Live | None:
        live = self._live.get(id)
        return live if live is not None and live.recording.owner == key and not live.deleted else None

    async def history(self, id: str, key: str) -> list[Item]:
        """What a response was made from, and its output. Raises InvalidRequest."""
        live = self._find_live(id, key)
        if live is not None and live.ended:
            return [*live.items, *live.events.response.output]
        stored = None
        for _ in range(1 if live is not None else SETTLE_TRIES):
            stored = await self._store.find(id, key)
            if stored is None or stored.ended:
                break
            await asyncio.sleep(SETTLE_S)  # another worker's: its last event may come before it is stored
        if live is not None or (stored is not None and not stored.ended):
            raise InvalidRequest("this response has not ended yet", param="previous_response_id")
        if stored is None:
            said = f"there is no response {id[:80]!r}, or it is not stored any more"
            raise InvalidRequest(said, param="previous_response_id", code="previous_response_not_found")
        return [*stored.items, *msgspec.json.decode(stored.response)["output"]]

    def events(self, found: Live | Stored, starting_after: int | None) -> Response:
        """The events after this sequence number, or all, and those that are still to come.

        Raises InvalidRequest and EventsExpired."""
        after = 0 if starting_after is None else starting_after + 1
        if isinstance(found, Live):
            _check_after(after, found.recording.last - found.recording.kept, found.recording.last)
            return RecordedReply(self._recordings, found.recording, after, self._settings)
        events = found.events or []
        _check_after(after, found.first, found.first + len(events))
        response = Response(b"".join(events[after - found.first :]))
        response.raw_headers += stream_head("text/event-stream")
        return response

    async def cancel(self, found: Live | Stored) -> Response:
        """Ends it, if it has not ended; what it has become."""
        if isinstance(found, Live) and not found.ended:
            found.recording.stop()
            await found.recording.end()
        return Response(found.response, media_type="application/json")

    async def delete(self, found: Live | Stored, id: str) -> None:
        if isinstance(found, Live):
            found.deleted = True
            self._recordings.remove(found.recording)
        await self._store.delete(id)

    async def close(self) -> None:
        """Ends what is being made, and waits until it is stored."""
        for live in list(self._live.values()):
            live.recording.stop()
            await live.recording.end()
        while self._writes:
            await asyncio.wait(set(self._writes))


def _check_after(after: int, first: int, last: int) -> None:
    if after > last:
        raise InvalidRequest(f"this response has only {last} events so far", param="starting_after")
    if after < first:
        raise EventsExpired(f"event {after} of this response is not kept any more", param="starting_after")
