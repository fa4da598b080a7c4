"""Responses as routes see them: sent once, or recorded so that a reader who lost its connection can go on."""

from hashlib import blake2b

from starlette.requests import HTTPConnection, Request
from starlette.responses import Response

from headway.core.config import ServerSettings
from headway.core.errors import InvalidRequest
from headway.delivery.caller import caller_of
from headway.delivery.http_errors import EventsExpired
from headway.delivery.merge import Merged
from headway.delivery.peers import Peers
from headway.delivery.recorded_reply import RecordedReply
from headway.delivery.recording import Recording
from headway.delivery.recordings import Recordings
from headway.delivery.reply import StreamReply, WholeReply
from headway.delivery.schemas import Common
from headway.delivery.start import Exchange
from headway.delivery.stream_id import split_event_id, worker_of
from headway.observability.metrics import Metrics

LAST_EVENT_ID = "last-event-id"


class Streams:
    """Of one API worker."""

    def __init__(self, recordings: Recordings, peers: Peers, settings: ServerSettings, metrics: Metrics) -> None:
        self._recordings = recordings
        self._peers = peers
        self._settings = settings
        self._metrics = metrics

    async def elsewhere(self, request: Request, stream: str | None = None) -> Response | None:
        """The answer of the worker that makes the stream which is asked for (by default: whose event the request names
        as its last), if that is another one. To be asked before the body is read."""
        if stream is None:
            if LAST_EVENT_ID not in request.headers:
                return None
            stream, _ = split_event_id(request.headers[LAST_EVENT_ID])
        worker = worker_of(stream)
        if worker is None or not self._peers.other(worker):
            return None
        return await self._peers.forward(request, worker, self._settings.max_body_bytes)

    def resumed(self, request: Request, body: Common) -> Response | None:
        """For a request that was sent before, and names the last event that came: what follows. None for a new one.

        Raises InvalidRequest where it is not the same request, and NoSuchStream."""
        if LAST_EVENT_ID not in request.headers:
            return None
        if not is_resumable(body):
            raise InvalidRequest(
                "Last-Event-ID is for streams that were asked for with stream_options.resumable", param="Last-Event-ID"
            )
        stream, after = split_event_id(request.headers[LAST_EVENT_ID])
        recording = self.find(request, stream)
        if recording.digest != _digest(body):
            raise InvalidRequest("Last-Event-ID belongs to another request", param="Last-Event-ID")
        return self.read(recording, after)

    def reply(self, request: Request, body: Common, exchange: Exchange) -> Response:
        """What has been started, sent as its request wants it."""
        if not body.stream:
            return WholeReply(exchange.generations, exchange.whole())
        if not is_resumable(body):
            return StreamReply(exchange.generations, exchange.stream(), self._settings, coalesce_s(body))
        return RecordedReply(self._recordings, self.record(request, body, exchange), 0, self._settings)

    def record(self, request: HTTPConnection, body: Common, exchange: Exchange) -> Recording:
        """What has been started, recorded from now on. Raises Overloaded."""
        events = Merged(exchange.generations, coalesce_s(body))
        owner = caller_of(request).key
        return self._recordings.open(exchange.id, owner, _digest(body), events, exchange.stream())

    def find(self, request: HTTPConnection, id: str) -> Recording:
        """Raises NoSuchStream."""
        return self._recordings.find(id, caller_of(request).key)

    def read(self, recording: Recording, after: int) -> Response:
        """What follows event `after`. Raises InvalidRequest and EventsExpired."""
        self.resume(recording, after)
        return RecordedReply(self._recordings, recording, after, self._settings)

    def resume(self, recording: Recording, after: int) -> None:
        """A reader comes back. Raises InvalidRequest and EventsExpired where nothing follows event `after`."""
        if after > recording.last:
            raise InvalidRequest(f"this stream has only {recording.last} events so far", param="after")
        if after < recording.last - recording.kept:
            raise EventsExpired(f"event {after + 1} of this stream is not kept any more", param="after")
        self._metrics.resumed()

    def cancel(self, recording: Recording) -> None:
        """Ends it, and forgets it."""
        self._recordings.remove(recording)


def is_resumable(body: Common) -> bool:
    return body.stream_options is not None and bool(body.stream_options.resumable)


def coalesce_s(body: Common) -> float:
    """Seconds within which tokens may be joined into one event."""
    return (body.stream_options.coalesce_ms or 0) / 1e3 if body.stream_options else 0.0


def _digest(body: Common) -> bytes:
    return blake2b(body.model_dump_json().encode(), digest_size=16).digest()
