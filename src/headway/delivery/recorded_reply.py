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
from headway.delivery.keep_alive import KeepAlive
from headway.delivery.recording import Recording
from headway.delivery.recordings import Recordings
from headway.delivery.reply import stream_head

log = logging.getLogger(__name__)


class RecordedReply(Response):
    """One reader of a recording. Its going away ends nothing by itself: `Recordings.leave` decides."""

    def __init__(self, recordings: Recordings, recording: Recording, after: int, settings: ServerSettings) -> None:
        super().__init__()
        self._recordings = recordings
        self._recording = recording
        self._after = after
        self._settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not await until_disconnect(receive, self._read(scope, receive, send)):
            log.debug("a reader of %s went away", scope["path"])

    async def _read(self, scope: Scope, receive: Receive, send: Send) -> None:
        task = asyncio.current_task()
        assert task is not None
        recording = self._recording
        self._recordings.enter(recording, task)
        try:
            with contextlib.suppress(TimeoutError):  # then the headers go without it
                await asyncio.wait_for(recording.begun.wait(), self._settings.header_wait_s)
            if recording.refusal is not None:
                await error_response(recording.refusal)(scope, receive, send)
            else:
                await self._stream(scope, send)
        finally:
            self._recordings.leave(recording, task)

    async def _stream(self, scope: Scope, send: Send) -> None:
        recording, after = self._recording, self._after
        await send({"type": "http.response.start", "status": 200, "headers": stream_head(recording.media_type)})
        send = scope[RAW_SEND]
        keep_alive = KeepAlive(recording.keep_alive, self._settings.keep_alive_s, send)
        try:
            while True:
                data, after = recording.read(after)
                last = recording.exhausted(after)
                if data or last:
                    keep_alive.sent()
                    recording.known = True
                    await send({"type": "http.response.body", "body": data, "more_body": not last})
                if last:
                    return
                await recording.more(after)
        except EventsExpired as error:  # this reader was too slow for what the journal keeps
            await send({"type": "http.response.body", "body": recording.failed(error), "more_body": False})
        finally:
            keep_alive.close()
