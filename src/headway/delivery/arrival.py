"""The outermost layer: stamps a request with its arrival and its id."""

import re
import secrets
from collections.abc import Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

ARRIVAL = "headway.arrival"  # key in the ASGI scope: Clock seconds
RAW_SEND = "headway.send"  # the server's own send; for what follows the start of a response
SANE_ID = re.compile(rb"[\x21-\x7e]{1,128}")


class Arrival:
    """Notes when a request came, and answers with its x-request-id: the client's own if it is sane, else a new one."""

    def __init__(self, app: ASGIApp, now: Callable[[], float]) -> None:
        self._app = app
        self._now = now

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope[ARRIVAL] = self._now()
        scope[RAW_SEND] = send
        given = next((value for name, value in scope["headers"] if name == b"x-request-id"), b"")
        request_id = given if SANE_ID.fullmatch(given) else f"req-{secrets.token_hex(12)}".encode()

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), (b"x-request-id", request_id)]
            await send(message)

        await self._app(scope, receive, send_with_id)
