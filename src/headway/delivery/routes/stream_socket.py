"""The WebSocket /v1/stream: one connection, many chats and completions at once, each with the events that HTTP has."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Literal

import msgspec
from fastapi import APIRouter, WebSocket
from starlette.requests import HTTPConnection
from starlette.websockets import WebSocketDisconnect

from headway.core.errors import HeadwayError, InvalidRequest, Overloaded
from headway.delivery.body import parse_body
from headway.delivery.caller import caller_of
from headway.delivery.deadline import timing_of
from headway.delivery.http_errors import as_headway_error, error_body, status_of
from headway.delivery.recording import Recording
from headway.delivery.recordings import Recordings
from headway.delivery.schemas import ChatRequest, CompletionRequest
from headway.delivery.start import Exchange, start_chat, start_completion
from headway.delivery.streams import Streams, is_resumable
from headway.delivery.websocket import Incoming, Link, accept
from headway.serving.frontend import Frontend

MOST_LIVE = 128  # requests of one connection
LONGEST_ID = 128
RETRY_S = 1.0


class Create(msgspec.Struct, tag_field="type", tag="create", forbid_unknown_fields=True):
    """Starts a request; `id` is the client's name for it, free again once it is done."""

    id: str
    body: msgspec.Raw
    endpoint: Literal["chat.completions", "completions"] = "chat.completions"


class Resume(msgspec.Struct, tag_field="type", tag="resume", forbid_unknown_fields=True):
    """Goes on with a resumable stream after its event number `after`."""

    id: str
    stream: str
    after: int = 0


class Cancel(msgspec.Struct, tag_field="type", tag="cancel", forbid_unknown_fields=True):
    """Ends a request."""

    id: str


class Named(msgspec.Struct):
    """What a message that is wrong may still say."""

    id: str = ""


decode = msgspec.json.Decoder(Create | Resume | Cancel).decode
encode = msgspec.json.encode


def stream_socket_router(
    frontend: Frontend,
    recordings: Recordings,
    streams: Streams,
    auth: Callable[[HTTPConnection], Awaitable[None]],
) -> APIRouter:
    """Not to be guarded: it checks the key itself, before it accepts."""
    router = APIRouter()

    @router.websocket("/v1/stream")
    async def converse(websocket: WebSocket) -> None:
        link = await accept(websocket, auth, frontend.now)
        if link is not None:
            await Requests(link, frontend, recordings, streams).run()

    return router


class Requests:
    """Those of one connection. When it ends, so do they, but for resumable ones."""

    def __init__(self, link: Link, frontend: Frontend, recordings: Recordings, streams: Streams) -> None:
        self._link = link
        self._frontend = frontend
        self._recordings = recordings
        self._streams = streams
        self._live: dict[str, asyncio.Task[None]] = {}
        self._recorded: dict[str, Recording] = {}  # those of them that are being made

    async def run(self) -> None:
        """To the end of the connection."""
        try:
            async for incoming in self._link:
                await self._take(incoming)
        except WebSocketDisconnect:
            pass
        finally:
            tasks = list(self._live.values())
            for task in tasks:
                task.cancel()
            if tasks:
                await asyncio.wait(tasks)

    async def _take(self, incoming: Incoming) -> None:
        id = ""
        try:
            try:
                message = decode(incoming.data)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                id = _id_of(incoming.data)
                raise InvalidRequest(f"the message is wrong: {error}", code="invalid_message") from None
            id = message.id
            if isinstance(message, Cancel):
                self._cancel(id)
                return
            if not 0 < len(id) <= LONGEST_ID:
                raise InvalidRequest(f"id must have 1 to {LONGEST_ID} characters", param="id")
            if id in self._live:
                raise InvalidRequest("a request with this id is live", param="id", code="duplicate_id")
            if len(self._live) >= MOST_LIVE:
                raise Overloaded(f"a connection has at most {MOST_LIVE} live requests", retry_after_s=RETRY_S)
        except HeadwayError as error:
            await self._refuse(id, error)
            return
        self._live[id] = asyncio.create_task(self._serve(message, incoming.request))
        await asyncio.sleep(0)  # one cancelled before its first line would tell nobody

    def _cancel(self, id: str) -> None:
        """For good: a resumable one too. Harmless when it has ended."""
        if (recording := self._recorded.get(id)) is not None:
            self._recordings.remove(recording)
        if (task := self._live.get(id)) is not None:
            task.cancel()

    async def _serve(self, message: Create | Resume, request: HTTPConnection) -> None:
        """One request, from its start to its last message; no exception leaves it."""
        id = message.id
        try:
            if isinstance(message, Resume):
                recording = self._streams.find(request, message.stream)
                self._streams.resume(recording, message.after)
                good = await self._follow(id, recording, message.after)
            else:
                good = await self._create(message, request)
            if good:
                await self._link.send(b'{"type":"done","id":%b}' % encode(id))
        except WebSocketDisconnect:
            pass
        except asyncio.CancelledError:
            await self._tell_end(id)
        except Exception as error:
            await self._refuse(id, as_headway_error(error))
        finally:
            del self._live[id]

    async def _create(self, message: Create, request: HTTPConnection) -> bool:
        body, exchange = await self._start(message, request)
        recording = self._streams.record(request, body, exchange)
        try:
            return await self._follow(message.id, recording, 0)
        finally:
            if not is_resumable(body):
                self._recordings.remove(recording)

    async def _start(
        self, message: Create, request: HTTPConnection
    ) -> tuple[ChatRequest | CompletionRequest, Exchange]:
        promise, caller = self._frontend.settings.promise, caller_of(request)
        if message.endpoint == "completions":
            text = parse_body(_streamed(message.body), CompletionRequest)
            return text, await start_completion(self._frontend, text, timing_of(request, promise, text.timeout), caller)
        chat = parse_body(_streamed(message.body), ChatRequest)
        return chat, await start_chat(self._frontend, chat, timing_of(request, promise, chat.timeout), caller)

    async def _follow(self, id: str, recording: Recording, after: int) -> bool:
        """Sends the events after `after`. False: the last was an error."""
        task = asyncio.current_task()
        assert task is not None
        self._recordings.enter(recording, task)
        self._recorded[id] = recording
        good = True
        try:
            await recording.begun.wait()
            if recording.refusal is not None:
                raise recording.refusal
            while not recording.exhausted(after):
                data, after = recording.read(after)
                recording.known = True
                for event in data.split(b"\n\n")[:-1]:
                    good &= await self._send(id, event)
                await recording.more(after)
            return good
        finally:
            del self._recorded[id]
            self._recordings.leave(recording, task)

    async def _send(self, id: str, event: bytes) -> bool:
        """One server-sent event as a message, but for [DONE]: `done` and errors end a request. False: an error."""
        name, _, payload = event.partition(b"\ndata: ")
        if payload == b"[DONE]":
            return True
        kind = b"error" if payload.startswith(b'{"error":') else b"event"
        body = payload[1:-1] if kind == b"error" else b'"data":' + payload
        number = encode(name.removeprefix(b"id: ").decode())
        await self._link.send(b'{"type":"%b","id":%b,"event_id":%b,%b}' % (kind, encode(id), number, body))
        return kind == b"event"

    async def _tell_end(self, id: str) -> None:
        """The client has cancelled, or it is gone."""
        with contextlib.suppress(WebSocketDisconnect):
            await self._link.send(b'{"type":"cancelled","id":%b}' % encode(id))

    async def _refuse(self, id: str, error: HeadwayError) -> None:
        retry = getattr(error, "retry_after_s", None)
        told = b"" if retry is None else b',"retry_after_ms":%d' % max(1, round(retry * 1000))
        head = b'{"type":"error","id":%b,"status":%d%b,' % (encode(id), status_of(error), told)
        with contextlib.suppress(WebSocketDisconnect):
            await self._link.send(head + error_body(error)[1:])


def _streamed(body: msgspec.Raw) -> bytes:
    """The body as of a request for a stream, which all are here."""
    try:
        fields = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    except msgspec.DecodeError as error:
        raise InvalidRequest(f"body must be an object: {error}", param="body") from None
    if fields.setdefault("stream", msgspec.Raw(b"true")) != msgspec.Raw(b"true"):
        raise InvalidRequest("on a WebSocket everything is streamed", param="stream")
    return encode(fields)


def _id_of(data: bytes) -> str:
    try:
        return msgspec.json.decode(data, type=Named).id[:LONGEST_ID]
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""
