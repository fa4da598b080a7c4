"""Sends a recorded response to one reader, from any event on."""

import asyncio
import contextlib
import logging

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from headway.core.config import ServerSettings
from headway.delivery.arrival import RAW_SEND
from headway.delivery.disconnect import until_disconnect
from headway.delivery.http_errors import EventsExpired, error_response
from headway.delivery.http_protocol import CONNECTION, HttpProtocol
from headway.delivery.keep_alive import KeepAlive
from headway.delivery.openai_format import WholeFormat
from headway.delivery.recording import Recording
from headway.delivery.recordings import Recordings
from headway.delivery.reply import stream_head

log = logging.getLogger(__name__)


class Reader(Response):
    """One reader of a recording. Its going away ends nothing by itself: `Recordings.leave` decides."""

    def __init__(self, recordings: Recordings, recording: Recording) -> None:
        super().__init__()
        self._recordings = recordings
        self._recording = recording

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not await until_disconnect(receive, self._enter(scope, receive, send)):
            log.debug("a reader of %s went away", scope["path"])

    async def _enter(self, scope: Scope, receive: Receive, send: Send) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._recordings.enter(self._recording, task)
        try:
            await self._read(scope, receive, send)
        finally:
            self._recordings.leave(self._recording, task)

    async def _read(self, scope: Scope, receive: Receive, send: Send) -> None:
        raise NotImplementedError


class RecordedWholeReply(Reader):
    """What a recording has become in the end."""

    def __init__(self, recordings: Recordings, recording: Recording, format: WholeFormat) -> None:
        super().__init__(recordings, recording)
        self._format = format

    async def _read(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._recording.end()
        if self._recording.failure is not None:
            response = error_response(self._recording.failure)
        else:
            self._recording.known = True
            response = Response(self._format.body(), media_type="application/json")
        await response(scope, receive, send)


class RecordedReply(Reader):
    """The events of a recording after number `after`, and what follows."""

    def __init__(self, recordings: Recordings, recording: Recording, after: int, settings: ServerSettings) -> None:
        super().__init__(recordings, recording)
        self._after = after
        self._settings = settings

    async def _read(self, scope: Scope, receive: Receive, send: Send) -> None:
        recording = self._recording
        with contextlib.suppress(TimeoutError):  # then the headers go without it
            await asyncio.wait_for(recording.begun.wait(), self._settings.header_wait_s)
        if recording.refusal is not None:
            await error_response(recording.refusal)(scope, receive, send)
        else:
            await self._stream(scope, send)

    async def _stream(self, scope: Scope, send: Send) -> None:
        recording = self._recording
        await send({"type": "http.response.start", "status": 200, "headers": stream_head(recording.media_type)})
        send = scope[RAW_SEND]
        connection: HttpProtocol = scope[CONNECTION]
        keep_alive = KeepAlive(recording.keep_alive, self._settings.keep_alive_s, send)
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def write() -> None:
            if over.done():
                return
            try:
                while self._after < recording.last and not connection.full:
                    data, self._after = recording.read(self._after)
                    keep_alive.sent()
                    recording.known = True
                    connection.send_piece(data)
            except Exception as error:
                over.set_exception(error)
            else:
                if recording.exhausted(self._after):
                    over.set_result(None)

        connection.on_room = write
        recording.listeners.append(write)
        last = b""
        try:
            write()
            await over
            recording.known = True
        except EventsExpired as error:  # this reader was too slow for what the journal keeps
            last = recording.failed(error)
        finally:
            keep_alive.close()
            connection.on_room = None
            recording.listeners.remove(write)
        await send({"type": "http.response.body", "body": last, "more_body": False})
