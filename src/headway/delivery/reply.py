"""Sends one response: whole, or streamed as it comes. The hot path of every token, so nothing is between it and the
connection."""

import asyncio
import logging
from collections.abc import Sequence

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from headway.core.config import ServerSettings
from headway.core.errors import HeadwayError
from headway.delivery.arrival import RAW_SEND
from headway.delivery.coalesce import Event
from headway.delivery.disconnect import until_disconnect
from headway.delivery.http_errors import as_headway_error, error_response
from headway.delivery.http_protocol import CONNECTION, HttpProtocol
from headway.delivery.keep_alive import KeepAlive
from headway.delivery.merge import Merged
from headway.delivery.openai_format import StreamFormat, WholeFormat
from headway.serving.generation import Generation

log = logging.getLogger(__name__)


def stream_head(media_type: str) -> list[tuple[bytes, bytes]]:
    """The headers of a stream."""
    return [
        (b"content-type", media_type.encode() + b"; charset=utf-8"),
        (b"cache-control", b"no-cache"),
        (b"x-accel-buffering", b"no"),  # nginx would hold events back
    ]


class Reply(Response):
    """Base of both kinds. Owns its generations: they are closed however the response ends."""

    def __init__(self, generations: Sequence[Generation], coalesce_s: float = 0.0) -> None:
        super().__init__()
        self._events = Merged(generations, coalesce_s)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            if not await until_disconnect(receive, self._run(scope, receive, send)):
                log.debug("the client of %s went away", scope["path"])
        finally:
            self._events.close()

    async def _run(self, scope: Scope, receive: Receive, send: Send) -> None:
        raise NotImplementedError


class WholeReply(Reply):
    """Everything in one JSON body."""

    def __init__(self, generations: Sequence[Generation], format: WholeFormat) -> None:
        super().__init__(generations)
        self._format = format

    async def _run(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            async with self._events as events:
                self._add(await events.first())
                await events.run(self._add)
            response = Response(self._format.body(), media_type="application/json")
        except Exception as error:
            response = error_response(as_headway_error(error))
        await response(scope, receive, send)

    def _add(self, batch: list[Event]) -> None:
        for index, event in batch:
            self._format.add(index, event)


class StreamReply(Reply):
    """Event by event. The headers wait for the first one, so that a refusal in the queue is a real status."""

    def __init__(
        self,
        generations: Sequence[Generation],
        format: StreamFormat,
        settings: ServerSettings,
        coalesce_s: float = 0.0,
    ) -> None:
        super().__init__(generations, coalesce_s)
        self._format = format
        self._settings = settings

    async def _run(self, scope: Scope, receive: Receive, send: Send) -> None:
        # A reader that is too slow is not told: it does not read.
        self._events.on_overflow(scope[CONNECTION].drop)
        async with self._events as events:
            first = asyncio.create_task(events.first())
            try:
                await asyncio.wait((first,), timeout=self._settings.header_wait_s)
                if first.done() and (error := first.exception()) is not None and isinstance(error, Exception):
                    await error_response(as_headway_error(error))(scope, receive, send)
                    return
                await self._stream(first, events, scope, send)
            finally:
                first.cancel()

    async def _stream(self, first: "asyncio.Task[list[Event]]", events: Merged, scope: Scope, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": stream_head(self._format.media_type)})
        send = scope[RAW_SEND]  # the layers above only care for the start
        connection: HttpProtocol = scope[CONNECTION]
        keep_alive = KeepAlive(self._format.keep_alive, self._settings.keep_alive_s, send)
        event_of = self._format.event

        def write(batch: list[Event]) -> None:
            data = b""
            for index, event in batch:  # nearly always one
                data += event_of(index, event)
            if data:
                keep_alive.sent()
                connection.send_piece(data)
                if connection.full:
                    events.pause()

        connection.on_room = events.resume
        try:
            write(await first)
            await events.run(write)
            last = self._format.end()
        except HeadwayError as error:
            last = self._format.failed(error)
        except Exception as error:
            last = self._format.failed(as_headway_error(error))
        finally:
            keep_alive.close()
            connection.on_room = None
        await send({"type": "http.response.body", "body": last, "more_body": False})
