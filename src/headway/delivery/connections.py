"""How many connections there may be, and what the one too many is told."""

import asyncio
import logging
import resource
from typing import Any, cast

from uvicorn.config import Config
from uvicorn.server import ServerState

from headway.delivery.connection_limits import limits_of
from headway.delivery.http_errors import TooManyConnections, bare_response
from headway.delivery.http_protocol import HttpProtocol

log = logging.getLogger(__name__)

RETRY_S = 5.0
LINGER_S = 1.0  # for the refused to read why
MOST_REFUSED = 256  # that are given this time at once
MOST_UNREAD = 64 << 10  # bytes from one of them
RESERVE = 256  # files that are no connections: sockets to the engine, the store, libraries
LOG_S = 10.0  # between two lines of the log that say so
REFUSAL = bare_response(TooManyConnections("the server has as many connections as it may", retry_after_s=RETRY_S))


def connect(
    config: Config, server_state: ServerState, app_state: dict[str, Any], _loop: asyncio.AbstractEventLoop | None = None
) -> asyncio.Protocol:
    """What is to speak on a new connection."""
    most = limits_of(config).most
    if len(server_state.connections) < most:
        return HttpProtocol(config, server_state, app_state, _loop)
    return Refusal(_loop or asyncio.get_running_loop(), most)


class Refusal(asyncio.Protocol):
    """A connection too many: 503 unheard, and an end.

    It is closed for writing only, at first: a client that is still sending when it is closed for both never sees the
    answer. It has no parser, no request and no place among the connections.
    """

    _now = 0  # of them
    _said = float("-inf")

    def __init__(self, loop: asyncio.AbstractEventLoop, most: int) -> None:
        self._loop = loop
        self._unread = 0
        self._timer: asyncio.TimerHandle | None = None
        if loop.time() - Refusal._said >= LOG_S:
            Refusal._said = loop.time()
            log.warning("there are %d connections: more are refused", most)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport = cast(asyncio.Transport, transport)
        Refusal._now += 1
        transport.write(REFUSAL)
        if Refusal._now > MOST_REFUSED:
            transport.close()
            return
        transport.write_eof()
        self._timer = self._loop.call_later(LINGER_S, transport.abort)

    def data_received(self, data: bytes) -> None:
        self._unread += len(data)
        if self._unread > MOST_UNREAD:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        Refusal._now -= 1
        if self._timer is not None:
            self._timer.cancel()


def raise_open_files(connections: int) -> int:
    """Lets this process have so many connections open, or as many as the system allows; returns how many."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    others = RESERVE + MOST_REFUSED
    wanted = connections + others
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    possible = connections if soft == resource.RLIM_INFINITY else max(1, min(connections, soft - others))
    if possible < connections:
        log.warning("at most %d connections, not %d: the limit of open files is %d", possible, connections, soft)
    return possible
