"""The WebSocket on /v1/responses: one connection, several lanes of requests, the events that HTTP has."""

import asyncio
import re
from collections import OrderedDict
from typing import Any

import msgspec
from fastapi import APIRouter, WebSocket
from starlette.websockets import WebSocketDisconnect

from headway.core.errors import HeadwayError, InvalidRequest, Overloaded
from headway.delivery.body import parse_body
from headway.delivery.http_errors import EventsExpired, as_headway_error, error_body, status_of
from headway.delivery.openai_request import check_model
from headway.delivery.recording import Recording
from headway.delivery.recordings import Recordings
from headway.delivery.responses import Responses
from headway.delivery.responses_items import Item
from headway.delivery.responses_schema import STREAM_ID, ResponseCreate
from headway.delivery.websocket import Auth, Incoming, Link, accept
from headway.serving.frontend import Frontend

# As OpenAI has them, of one connection.
MOST_ACTIVE = 16  # responses being made; more wait
MOST_LANES = 32  # that have a name
MOST_WAITING = 64  # requests of one lane
MOST_WAITING_BYTES = 8 << 20  # of all lanes, beside a first request of any size
MOST_RECENT = 64  # responses that are not stored and can be gone on from
RETRY_S = 1.0


class Envelope(msgspec.Struct):
    """What says where a message belongs, even if all the rest of it is wrong."""

    type: Any = None
    stream_id: Any = None


def responses_socket_router(frontend: Frontend, recordings: Recordings, responses: Responses, auth: Auth) -> APIRouter:
    """Not to be guarded: it checks the key itself, before it accepts."""
    router = APIRouter()

    @router.websocket("/v1/responses")
    async def converse(websocket: WebSocket) -> None:
        link = await accept(websocket, auth, frontend.now)
        if link is not None:
            await Conversations(link, frontend.model_name, recordings, responses).run()

    return router


class Conversations:
    """Those of one connection. A lane makes one response after the other; lanes do not wait for each other."""

    def __init__(self, link: Link, model: str, recordings: Recordings, responses: Responses) -> None:
        self._link = link
        self._model = model
        self._recordings = recordings
        self._responses = responses
        self._lanes: dict[str | None, asyncio.Queue[Incoming]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._active = asyncio.Semaphore(MOST_ACTIVE)
        self._waiting = 0  # bytes
        self._recent: OrderedDict[str, list[Item]] = OrderedDict()

    async def run(self) -> None:
        """To the end of the connection."""
        try:
            async for incoming in self._link:
                await self._take(incoming)
        except WebSocketDisconnect:
            pass
        finally:
            for task in self._tasks:
                task.cancel()
            if self._tasks:
                await asyncio.wait(self._tasks)

    async def _take(self, incoming: Incoming) -> None:
        name: str | None = None
        try:
            envelope = _envelope(incoming.data)
            if envelope.type != "response.create":
                said = "type must be response.create; other messages are not supported"
                raise InvalidRequest(said, param="type", code="unsupported_parameter")
            name = _name(envelope.stream_id)
            lane, size = self._lane(name), len(incoming.data)
            if lane.full() or (self._waiting and self._waiting + size > MOST_WAITING_BYTES):
                raise Overloaded("too many requests wait on this connection", retry_after_s=RETRY_S)
            lane.put_nowait(incoming)
            self._waiting += size
        except HeadwayError as error:
            await self._refuse(error, name)

    def _lane(self, name: str | None) -> "asyncio.Queue[Incoming]":
        if name in self._lanes:
            return self._lanes[name]
        if name is not None and len(self._lanes) - (None in self._lanes) >= MOST_LANES:
            said = f"a connection has at most {MOST_LANES} values of stream_id"
            raise InvalidRequest(said, param="stream_id", code="websocket_stream_limit_reached")
        queue: asyncio.Queue[Incoming] = asyncio.Queue(MOST_WAITING)
        self._lanes[name] = queue
        task = asyncio.create_task(self._serve(name, queue))
        self._tasks.add(task)
        return queue

    async def _serve(self, name: str | None, queue: "asyncio.Queue[Incoming]") -> None:
        try:
            while True:
                incoming = await queue.get()
                async with self._active:
                    self._waiting -= len(incoming.data)
                    await self._respond(name, incoming)
        except WebSocketDisconnect:
            pass

    async def _respond(self, name: str | None, incoming: Incoming) -> None:
        previous = None
        try:
            body = parse_body(incoming.data, ResponseCreate)
            previous = body.previous_response_id
            check_model(body.model, self._model)
            if body.generate is False:
                warmed = await self._responses.warm(incoming.request, body, self._recent)
                if not warmed.kept:
                    self._remember(warmed.id, warmed.items)
                await self._send(warmed.events, name)
                return
            begun = await self._responses.begin(incoming.request, body, self._recent)
            recording = await self._responses.record(begun, early=True)
        except WebSocketDisconnect:
            raise
        except Exception as error:
            if previous is not None:  # as OpenAI has it: what failed to go on has to begin anew
                self._recent.pop(previous, None)
            await self._refuse(as_headway_error(error), name)
            return
        try:
            await self._follow(recording, name)
            if not begun.kept and recording.failure is None:
                self._remember(recording.id, [*begun.items, *begun.events.response.output])
        finally:
            if not begun.kept:  # nobody else can come for it
                self._recordings.remove(recording)

    async def _follow(self, recording: Recording, name: str | None) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._recordings.enter(recording, task)
        try:
            await recording.begun.wait()
            if recording.refusal is not None:
                await self._refuse(recording.refusal, name)
                return
            after = 0
            while not recording.exhausted(after):
                data, after = recording.read(after)
                recording.known = True
                await self._send(data, name)
                await recording.more(after)
        except EventsExpired as error:  # this reader was too slow for what the journal keeps
            await self._refuse(error, name)
        finally:
            self._recordings.leave(recording, task)

    def _remember(self, id: str, items: list[Item]) -> None:
        self._recent[id] = items
        while len(self._recent) > MOST_RECENT:
            self._recent.popitem(last=False)

    async def _send(self, data: bytes, name: str | None) -> None:
        """Server-sent events, as messages."""
        for event in data.split(b"\n\n")[:-1]:
            _, _, payload = event.partition(b"\ndata: ")
            await self._link.send(_of_lane(payload, name))

    async def _refuse(self, error: HeadwayError, name: str | None) -> None:
        told = b'{"type":"error","status":%d,' % status_of(error) + error_body(error)[1:]
        await self._link.send(_of_lane(told, name))


def _name(given: Any) -> str | None:
    if given is None or (isinstance(given, str) and re.fullmatch(STREAM_ID, given)):
        return given
    said = "stream_id must have 1 to 256 letters, digits, underscores, hyphens and periods"
    raise InvalidRequest(said, param="stream_id", code="invalid_stream_id")


def _of_lane(payload: bytes, name: str | None) -> bytes:
    return payload if name is None else b'%b,"stream_id":%b}' % (payload[:-1], msgspec.json.encode(name))


def _envelope(data: bytes) -> Envelope:
    try:
        return msgspec.json.decode(data, type=Envelope)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"the message is not a JSON object: {error}", code="invalid_json") from None
