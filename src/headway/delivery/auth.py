"""API keys."""

import hmac
from collections.abc import Awaitable, Callable

from starlette.requests import Request

from headway.core.errors import Unauthorized

SCHEME = "bearer "


def make_auth(key: str | None) -> Callable[[Request], Awaitable[None]]:
    """A dependency that raises Unauthorized unless the request carries `key`; None lets everybody in."""
    expected = key.encode() if key is not None else None

    async def check(request: Request) -> None:
        if expected is None:
            return
        header = request.headers.get("authorization", "")
        given = header[len(SCHEME) :].strip() if header[: len(SCHEME)].lower() == SCHEME else ""
        # Compared as bytes and in constant time: neither length of a match nor odd characters tell anything.
        # Headers come decoded as latin-1, whatever the client had written.
        if not hmac.compare_digest(given.encode("latin-1"), expected):
            raise Unauthorized("this server needs an API key: Authorization: Bearer <key>")

    return check
