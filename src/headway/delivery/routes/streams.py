"""GET and DELETE /v1/streams/{id}: go on with a stream whose connection was lost, or end it."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import JSONResponse, Response

from headway.core.errors import InvalidRequest
from headway.delivery.http_errors import NoSuchStream
from headway.delivery.openapi import STREAMS
from headway.delivery.stream_id import LONGEST_AFTER, split_event_id
from headway.delivery.streams import LAST_EVENT_ID, Streams


def streams_router(streams: Streams) -> APIRouter:
    router = APIRouter(tags=["Resume"])

    @router.get("/v1/streams/{id}", responses=STREAMS)
    async def resume_stream(
        request: Request, id: str, after: Annotated[int | None, Query(ge=0, le=LONGEST_AFTER)] = None
    ) -> Response:
        """Replays the events after number `after`, or after that of Last-Event-ID, byte for byte, and goes on
        with the stream."""
        if (answer := await streams.elsewhere(request, id)) is not None:
            return answer
        return streams.read(streams.find(request, id), _after(request, id, after))

    @router.delete("/v1/streams/{id}")
    async def cancel_stream(request: Request, id: str) -> Response:
        """Ends a resumable stream: going away would not."""
        if (answer := await streams.elsewhere(request, id)) is not None:
            return answer
        streams.cancel(streams.find(request, id))
        deleted: dict[str, Any] = {"id": id, "object": "stream", "deleted": True}
        return JSONResponse(deleted)

    return router


def _after(request: Request, id: str, after: int | None) -> int:
    header = request.headers.get(LAST_EVENT_ID)
    if header is None:
        return after or 0
    if after is not None:
        raise InvalidRequest("send either `after` or Last-Event-ID", param="after")
    stream, number = split_event_id(header)
    if stream != id:
        raise NoSuchStream("Last-Event-ID is of another stream", param="Last-Event-ID")
    return number
