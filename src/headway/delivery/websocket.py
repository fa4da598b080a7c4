"""WebSockets: who may open one, what comes in, and what goes out.

uvicorn bounds the size of a message (`server.max_body_bytes`), reads no further than one message ahead, pings every
`server.keep_alive_s`, and says goodbye (1012) at a shutdown, after the drain.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

from starlette.requests import HTTPConnection
from starlette.websockets import WebSocket, WebSocketDisconnect

from headway.core.errors import HeadwayError
from headway.delivery.arrival import ARRIVAL
from headway.delivery.http_errors import error_response

WEBSOCKETS = frozenset({"/v1/responses", "/v1/stream"})  # paths where `Upgrade: websocket` is heard


@dataclass(frozen=True, slots=True)
class Incoming:
    """One message, and what is known of it as of a request: its arrival, its caller, the headers it came with."""

    data: bytes
    request: HTTPConnection


Auth = Callable[[HTTPConnection], Awaitable[None]]
POLICY = 1008  # close code


class Link:
    """An open WebSocket. Iterate over what comes in, to its end; `send` from any task."""

    def __init__(self, websocket: WebSocket, auth: Auth, now: Callable[[], float]) -> None:
        self._websocket = websocket
        self._auth = auth
        self._now = now

    async def __aiter__(self) -> AsyncIterator[Incoming]:
        while (message := await self._websocket.receive())["type"] == "websocket.receive":
            text = message.get("text")
            data = message["bytes"] if text is None else text.encode()
            request = HTTPConnection({**self._websocket.scope, ARRIVAL: self._now()})
            try:
                await self._auth(request)  # keys may have been reloaded
            except HeadwayError:
                await self._websocket.close(POLICY, "the API key is not valid any more")
                return
            yield Incoming(data, request)

    async def send(self, data: bytes) -> None:
        """One message of text. Waits while its reader is slow; raises WebSocketDisconnect when there is none."""
        try:
            await self._websocket.send_text(data.decode())
        except (OSError, RuntimeError) as error:
            raise WebSocketDisconnect(1006) from error


async def accept(websocket: WebSocket, auth: Auth, now: Callable[[], float]) -> Link | None:
    """None, and an HTTP status with OpenAI's error body, for who may not."""
    try:
        await auth(websocket)
    except HeadwayError as error:
        await websocket.send_denial_response(error_response(error))
        return None
    await websocket.accept()
    return Link(websocket, auth, now)
