"""Who sends a request, and what that allows."""

from dataclasses import dataclass
from hashlib import blake2b

from starlette.requests import HTTPConnection

from headway.core.lane import LANES, Lane

CALLER = "headway.caller"  # key in the ASGI scope
LONGEST_TENANT = 64  # characters, as for the tenants of keys


@dataclass(frozen=True, slots=True)
class Caller:
    """What a request's API key says, or that it needs none."""

    tenant: str | None  # None: the server is open, and the body's `user` says who shares with whom
    lane: Lane = Lane.DEFAULT  # of a request that asks for none
    ceiling: Lane = Lane.PRIORITY  # the highest a request may ask for
    weight: float = 1.0
    key: str = ""  # tells the keys apart, without being one; empty where none is asked for

    def lane_for(self, tier: str | None) -> Lane:
        """The lane of a request with this `service_tier`."""
        if tier is None or tier == "auto":
            return self.lane
        return max(LANES["priority" if tier == "fast" else tier], self.ceiling)  # of two lanes the greater is the lower

    @property
    def salt(self) -> bytes:
        """Of the prefix cache. How soon an answer comes tells whether its prompt was cached, so one key's tenant never
        meets another's blocks. `user` has no part in it: a client can claim any, and on an open server all share."""
        return (self.tenant or "").encode()

    def tenant_for(self, user: str | None) -> str:
        """The tenant of a request with this `user`."""
        if self.tenant is not None:
            return self.tenant
        if user is None or len(user) <= LONGEST_TENANT:
            return user or ""
        return blake2b(user.encode(), digest_size=16).hexdigest()  # two long ones that begin alike are still two


ANYBODY = Caller(None)  # on a server without keys
OPERATOR = Caller("")  # with server.api_key


def caller_of(request: HTTPConnection) -> Caller:
    """The caller that `auth` found; only for routes that it guards."""
    caller: Caller = request.scope[CALLER]
    return caller
