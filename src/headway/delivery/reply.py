"""Sends one response: whole, or streamed as it comes. Raw ASGI, because this is the hot path of every token."""

import asyncio
import logging
from collections.abc import Sequence
from functools import partial

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from headway.core.config import ServerSettings
from headway.core.errors import HeadwayError
from headway.delivery.arrival import RAW_SEND
from headway.delivery.disconnect import until_disconnect
from headway.delivery.http_errors import as_headway_error, error_response
from headway.delivery.keep_alive import KeepAlive
from headway.delivery.merge import Merged
from headway.delivery.openai_format import StreamFormat, WholeFormat
from headway.serving.generation import Generation
from headway.serving.text_events import TextEvent

log = logging.getLogger(__name__)


def _cancel(task: "asyncio.Task[None]") -> None:
    task.cancel()


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
                async for index, event in events:
                    self._format.add(index, event)
            response = Response(self._format.body(), media_type="application/json")
        except Exception as error:
            response = error_response(as_headway_error(error))
        await response(scope, receive, send)


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
        task = asyncio.current_task()
        assert task is not None
        # A reader that is too slow may have this task stuck in a send for good.
        self._events.on_overflow(partial(_cancel, task))
        async with self._events as events:
            first = asyncio.create_task(events.__anext__())
            try:
                await asyncio.wait((first,), timeout=self._settings.header_wait_s)
                if first.done() and (error := first.exception()) is not None and isinstance(error, Exception):
                    await error_response(as_headway_error(error))(scope, receive, send)
                    return
                await self._stream(first, events, scope, send)
            finally:
                first.cancel()

    async def _stream(
        self, first: "asyncio.Task[tuple[int, TextEvent]]", events: Merged, scope: Scope, send: Send
    ) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": stream_head(self._format.media_type)})
        send = scope[RAW_SEND]  # spares every event the way through the layers that only care for the start
        keep_alive = KeepAlive(self._format.keep_alive, self._settings.keep_alive_s, send)
        try:
            await self._send_events(first, events, send, keep_alive)
            last = self._format.end()
        except HeadwayError as error:
            last = self._format.failed(error)
        except Exception as error:
            last = self._format.failed(as_headway_error(error))
        finally:
            keep_alive.close()
        await send({"type": "http.response.body", "body": last, "more_body": False})

    async def _send_events(
        self, first: "asyncio.Task[tuple[int, TextEvent]]", events: Merged, send: Send, keep_alive: KeepAlive
    ) -> None:
        format_event = self._format.event
        index, event = await first
        while True:
            data = format_event(index, event)
            if data:
                keep_alive.sent()
                await send({"type": "http.response.body", "body": data, "more_body": True})
            try:
                index, event = await anext(events)
            except StopAsyncIteration:
                return
