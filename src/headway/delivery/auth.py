"""API keys."""

import hmac
from collections.abc import Awaitable, Callable
from dataclasses import replace
from hashlib import blake2b

from starlette.requests import HTTPConnection

from headway.core.config import KeySettings, Settings
from headway.core.errors import Unauthorized
from headway.core.lane import LANES
from headway.delivery.caller import ANYBODY, CALLER, OPERATOR, Caller

SCHEME = "bearer "


class KeyRing:
    """The keys of one state of the settings, and whose they are."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        lane = LANES[settings.lanes.default]
        self._anybody = replace(ANYBODY, lane=lane)
        self._entries = [(entry.key.encode(), _caller(entry)) for entry in settings.keys]
        if settings.server.api_key is not None:
            key = settings.server.api_key.encode()
            self._entries.append((key, replace(OPERATOR, lane=lane, key=_name(key))))

    def find(self, given: bytes) -> Caller | None:
        """Whose key it is, None if nobody's; always takes the time of comparing with every key."""
        if not self._entries:
            return self._anybody
        found = None
        for key, caller in self._entries:
            if hmac.compare_digest(given, key):
                found = caller
        return found


def bearer(request: HTTPConnection) -> bytes:
    """The key that comes with a request; empty if none does."""
    header = request.headers.get("authorization", "")
    # Headers come decoded as latin-1, whatever the client had written: to str.strip() the 0xA0 that some letters end
    # with in UTF-8 would be a space.
    given = header[len(SCHEME) :].strip(" \t") if header[: len(SCHEME)].lower() == SCHEME else ""
    return given.encode("latin-1")


def make_auth(settings: Callable[[], Settings]) -> Callable[[HTTPConnection], Awaitable[None]]:
    """A dependency that notes the request's caller (`caller_of`), or raises Unauthorized where the settings of the
    moment have keys and it carries none of them."""
    ring = KeyRing(settings())

    async def check(request: HTTPConnection) -> None:
        nonlocal ring
        now = settings()
        if now is not ring.settings:  # they were reloaded
            ring = KeyRing(now)
        # Compared as bytes and in constant time: neither length of a match nor odd characters tell anything.
        caller = ring.find(bearer(request))
        if caller is None:
            raise Unauthorized("this server needs an API key: Authorization: Bearer <key>")
        request.scope[CALLER] = caller

    return check


def _caller(entry: KeySettings) -> Caller:
    lane = LANES[entry.lane]
    return Caller(entry.tenant, lane=lane, ceiling=lane, weight=entry.weight, key=_name(entry.key.encode()))


def _name(key: bytes) -> str:
    return blake2b(key, digest_size=16).hexdigest()
