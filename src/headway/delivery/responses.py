"""Responses as routes see them: made, found while they are made or stored, followed, cancelled and deleted."""

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
from headway.delivery.caller import Caller, caller_of
from headway.delivery.deadline import timing_of
from headway.delivery.http_errors import EventsExpired, NoSuchResponse
from headway.delivery.merge import Merged
from headway.delivery.peers import Peers
from headway.delivery.recorded_reply import RecordedReply, RecordedWholeReply
from headway.delivery.recording import Recording, Terms
from headway.delivery.recordings import Recordings
from headway.delivery.reply import StreamReply, WholeReply, stream_head
from headway.delivery.responses_compaction import PLEASE, SHARE, CompactionWhole
from headway.delivery.responses_events import ResponseEvents, ResponseObject
from headway.delivery.responses_items import Item, chat_messages, input_items
from headway.delivery.responses_request import fitted, in_own_words, response_head, serving_request
from headway.delivery.responses_schema import CompactRequest, InputFields, ResponseRequest
from headway.delivery.responses_store import ResponsesStore, Stored
from headway.delivery.stream_id import new_id, worker_of
from headway.serving.frontend import Frontend
from headway.serving.generation import Generation
from headway.serving.request import Request as GenerationRequest

log = logging.getLogger(__name__)

ROOM_SHARE = 4  # of the context, what truncation leaves for an answer of no stated length: 1/4
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


class Responses:
    """Of one API worker."""

    def __init__(
        self,
        frontend: Frontend,
        recordings: Recordings,
        peers: Peers,
        store: ResponsesStore,
        settings: ServerSettings,
    ) -> None:
        self._frontend = frontend
        self._recordings = recordings
        self._peers = peers
        self._store = store
        self._settings = settings
        self._live: dict[str, Live] = {}
        self._writes: set[asyncio.Task[None]] = set()

    async def create(self, request: Request, body: ResponseRequest) -> Response:
        """Raises what the gate and the checks of the request do."""
        kept = self._keeps(body)
        caller = caller_of(request)
        items = await self.context(body, caller)
        messages = chat_messages(body.instructions, items)
        live = self._frontend.settings
        timing = timing_of(request, live.promise, body.timeout)
        if body.truncation == "auto":
            room = body.max_output_tokens or self._frontend.context // ROOM_SHARE
            messages = await fitted(self._frontend, body, messages, live.limits, caller, room)
        asked = serving_request(body, messages, live.limits, timing, caller)
        generation = await self._prepared(asked)
        worker = self._frontend.worker
        head = response_head(body, self._frontend.model_name, asked, kept)
        response = ResponseObject(new_id("resp_", worker), head, "queued" if body.background else "in_progress")
        events = ResponseEvents(response, worker, self._frontend.token_text)
        if kept:
            return await self._record(body, caller, items, generation, events)
        if body.stream:
            return StreamReply([generation], events, self._settings)
        return WholeReply([generation], events)

    async def compact(self, request: Request, body: CompactRequest) -> Response:
        """Has the model sum up a conversation, without its oldest turns where it is too long for the context."""
        caller = caller_of(request)
        items = await self.context(body, caller)
        live = self._frontend.settings
        most = self._frontend.context // SHARE
        asked_for = ResponseRequest(max_output_tokens=most, service_tier=body.service_tier)
        messages = [*chat_messages(body.instructions, items), PLEASE]
        messages = await fitted(self._frontend, asked_for, messages, live.limits, caller, most)
        timing = timing_of(request, live.promise)
        generation = await self._prepared(serving_request(asked_for, messages, live.limits, timing, caller))
        return WholeReply([generation], CompactionWhole(items, self._frontend.worker))

    def _keeps(self, body: ResponseRequest) -> bool:
        """Whether the response is stored. Raises InvalidRequest where it must be and cannot."""
        if body.stream_options is not None and not body.stream:
            raise InvalidRequest("stream_options needs stream: true", param="stream_options")
        if body.background and body.store is False:
            raise InvalidRequest("background needs store: true", param="background")
        for name, asked in (("store", body.store), ("background", body.background)):
            if asked and not self._store.opened:
                raise InvalidRequest(f"{name}: this server stores no responses", param=name, code="store_unavailable")
        return body.store is not False and self._store.opened

    async def context(self, body: InputFields, caller: Caller) -> list[Item]:
        """The items of the conversation that `body` continues, and its own. Raises InvalidRequest."""
        own = input_items(body.input, self._frontend.worker)
        if body.previous_response_id is None:
            return own
        return await self._history(body.previous_response_id, caller.key) + own

    async def _prepared(self, asked: GenerationRequest) -> Generation:
        """Past the gate, and known to be possible: a refusal is a status, whatever the request wants then."""
        generation = self._frontend.generate(asked)
        try:
            with in_own_words():
                await generation.prepare()
        except BaseException:
            generation.close("refused")
            raise
        return generation

    async def _record(
        self, body: ResponseRequest, caller: Caller, items: list[Item], generation: Generation, events: ResponseEvents
    ) -> Response:
        id = events.response.id
        terms = Terms(ids=False, background=bool(body.background), ended=self._ended)
        recording = self._recordings.open(id, caller.key, b"", Merged([generation]), events, terms)
        live = self._live[id] = Live(recording, events, items)
        if body.background:
            try:
                await self._store.begin(Stored(id, caller.key, live.response, items))
            except BaseException:
                live.deleted = True
                self._recordings.remove(recording)
                raise
        elif body.stream:
            self._write(self._store.begin(Stored(id, caller.key, live.response, items)))
        if body.stream:
            return RecordedReply(self._recordings, recording, 0, self._settings)
        if body.background:
            return _json(live.response)
        return RecordedWholeReply(self._recordings, recording, events)

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
        try:
            await self._store.finish(
                Stored(recording.id, recording.owner, live.response, live.items, recording.events, first)
            )
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

    # What there is.

    async def locate(self, request: Request, id: str) -> Live | Stored | Response:
        """The response of this id, or the answer of the worker that makes it. Raises NoSuchResponse."""
        key = caller_of(request).key
        live = self._live.get(id)
        if live is not None and live.recording.owner == key:
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

    async def _history(self, id: str, key: str) -> list[Item]:
        """What a response was made from, and its output. Raises InvalidRequest."""
        live = self._live.get(id)
        if live is not None and live.recording.owner == key:
            if not live.ended:
                raise _not_ended()
            return [*live.items, *live.events.response.output]
        for _ in range(SETTLE_TRIES):
            stored = await self._store.find(id, key)
            if stored is None or stored.ended:
                break
            await asyncio.sleep(SETTLE_S)  # its last event may have come before it is stored
        if stored is None:
            raise InvalidRequest(
                f"there is no response {id[:80]!r}, or it is not stored any more",
                param="previous_response_id",
                code="previous_response_not_found",
            )
        if not stored.ended:
            raise _not_ended()
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
        return _json(found.response)

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


def _not_ended() -> InvalidRequest:
    return InvalidRequest("this response has not ended yet", param="previous_response_id")


def _json(data: bytes) -> Response:
    return Response(data, media_type="application/json")
