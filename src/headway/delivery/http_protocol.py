"""uvicorn's HTTP/1.1 with what it lacks: bounds on headers and on the time that a request takes to come, OpenAI's error
shape, and deafness to `Upgrade` but where there is a WebSocket."""

import asyncio
from collections.abc import Callable, Iterable
from enum import Enum, auto
from typing import Any, cast

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from headway.core.errors import HeadwayError
from headway.delivery.connection_limits import limits_of
from headway.delivery.http_errors import HeadTooLarge, LateRequest, MalformedHttp, bare_response
from headway.delivery.stall import Stall
from headway.delivery.websocket import WEBSOCKETS

# Request line, headers, trailers and the framing of chunks. Without a bound a header without end takes all memory,
# and all time, since it is copied with every piece of it that comes.
MOST_HEAD = 256 << 10
TOO_LONG = HeadTooLarge(f"headers and the like have more than {MOST_HEAD} bytes")
CONNECTION = "headway.connection"  # key in the ASGI scope: the HttpProtocol
HOP_HEADERS = (b"upgrade", b"http2-settings")


class Owed(Enum):
    """What the client has to send next."""

    REQUEST = auto()  # anything: it has just connected, or sent line ends only
    HEAD = auto()  # the rest of a head
    BODY = auto()  # the rest of a body
    NOTHING = auto()


class HttpProtocol(Stall, HttpToolsProtocol):
    """One connection.

    What the client owes when all that has come is read has a time, `server.head_s` or `body_s`, on one timer; a request
    that comes in one piece sets none. Idle connections have uvicorn's."""

    _head = 0  # bytes of the current request that were not body
    _news = 0  # the same, of what has just come
    _owed = Owed.REQUEST
    _timed = Owed.NOTHING  # what the timer is for
    _timer: asyncio.TimerHandle | None = None
    _answering: RequestResponseCycle | None = None  # `cycle` is the newest one, which may wait behind this one
    _refusal: HeadwayError | None = None  # of what came behind requests that are still being answered
    on_room: Callable[[], None] | None = None  # called when the connection is no longer full

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.limits = limits_of(config)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(cast(asyncio.Transport, transport))
        self._set_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._unset_timer()
        self._unset_keepalive_if_required()
        if self._answering is not None:
            self.cycle = self._answering  # the one to be told
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._refusal is not None:
            return  # whatever it says
        self._unset_keepalive_if_required()
        if self._owed is Owed.NOTHING:
            self._owed = Owed.REQUEST
        self._news = len(data)
        self._head += self._news
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            if self._head > MOST_HEAD:
                self._refuse(TOO_LONG)
            elif self._is_websocket():
                if self._busy:
                    self._refuse(MalformedHttp("a WebSocket cannot begin behind a request that is not answered yet"))
                else:
                    self.handle_websocket_upgrade()
            else:
                self._ignore_upgrade(data[upgrade.args[0] :])
        except httptools.HttpParserError:
            self._refuse(MalformedHttp("this is not a valid HTTP/1.1 request"))
        else:
            if self._head > MOST_HEAD:
                self._refuse(TOO_LONG)
        if self._owed is not self._timed:
            self._set_timer()

    def on_message_begin(self) -> None:
        self._head = self._news
        self._owed = Owed.HEAD
        self._unset_timer()
        super().on_message_begin()
        cast(dict[str, object], self.scope)[CONNECTION] = self

    def on_headers_complete(self) -> None:
        self._owed = Owed.BODY
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._owed = Owed.NOTHING
        super().on_message_complete()

    # The time that a request has to come.

    def _set_timer(self) -> None:
        self._unset_timer()
        self._timed = self._owed
        if self._owed is not Owed.NOTHING:
            seconds = self.limits.body_s if self._owed is Owed.BODY else self.limits.head_s
            self._timer = self.loop.call_later(seconds, self._late)
        elif self.cycle is not None and self.cycle.response_complete and not self.transport.is_closing():
            # It was answered before it had come whole, and what came since has ended the idle time.
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def _unset_timer(self) -> None:
        self._timed = Owed.NOTHING
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _late(self) -> None:
        self._unset_timer()
        answered = self.cycle is None or self.cycle.response_complete
        if self.pipeline or not (answered or self._owed is Owed.BODY):
            self._set_timer()  # a request before it is still being answered, and nobody waits for this one
        elif self._owed is Owed.REQUEST:
            self._hang_up()
        else:
            what = "headers" if self._owed is Owed.HEAD else "the body"
            self._refuse(LateRequest(f"{what} did not come whole in time"))

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self.linger()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.transport.is_closing():
            self.linger()
        elif self._refusal is not None and not self._busy:
            self._refuse(self._refusal)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._answering = cycle
        super()._start_asgi_task(cycle, app)

    @property
    def _busy(self) -> bool:
        return self._answering is not None and not self._answering.response_complete

    def handle_websocket_upgrade(self) -> None:
        self._unset_timer()
        super().handle_websocket_upgrade()

    # What ASGI lacks: a way to send without a coroutine, a dict and a task to run it, for every token of a stream.

    @property
    def full(self) -> bool:
        """Whether its reader is behind, so that nothing more should be sent until `on_room`."""
        return self.flow.write_paused

    def send_piece(self, data: bytes) -> None:
        """Sends a piece of a response's body, after its head and before its last piece, which go by ASGI."""
        if not self.transport.is_closing():
            self.transport.write(b"%x\r\n%b\r\n" % (len(data), data))

    def resume_writing(self) -> None:
        super().resume_writing()
        if self.on_room is not None:
            self.on_room()

    def on_body(self, body: bytes) -> None:
        self._news -= len(body)
        self._head -= len(body)
        super().on_body(body)

    def _should_upgrade(self) -> bool:
        return True  # has the parent stop at the headers, whatever the protocol

    def _is_websocket(self) -> bool:
        path = self.url.partition(b"?")[0].decode("latin-1")
        keyed = any(name == b"sec-websocket-key" for name, _ in self.headers)
        return keyed and path in WEBSOCKETS and self.scope["method"] == "GET" and self._get_upgrade() == b"websocket"

    def _ignore_upgrade(self, rest: bytes) -> None:
        """Serves a request that asks for another protocol as if it had not, which HTTP allows.

        Java's HttpClient does so with every first request (`Upgrade: h2c`). The parser takes its body for the other
        protocol's first words, so it gets the request anew, without that header.
        """
        if self.scope["method"] == "CONNECT":
            self._refuse(MalformedHttp("CONNECT is for proxies"))
            return
        version = self.scope["http_version"].encode()
        lines = [self.scope["method"].encode() + b" " + self.url + b" HTTP/" + version]
        lines += [name + b": " + value for name, value in _without_upgrade(self.headers)]
        self.parser = httptools.HttpRequestParser(self)
        self.data_received(b"\r\n".join(lines) + b"\r\n\r\n" + rest)

    def _refuse(self, error: HeadwayError) -> None:
        """Answers below the application, when all that came before is answered, and hangs up."""
        broken = self._owed is Owed.BODY  # a request that the application has, or will have
        self._owed = Owed.NOTHING
        if broken and self.pipeline:
            self.pipeline.popleft()
        elif broken:
            if not self.cycle.response_started:
                self.transport.write(bare_response(error))
            self._hang_up()
            return
        if self._busy:
            self._refusal = error
            return
        self.transport.write(bare_response(error))
        self._hang_up()

    def _hang_up(self) -> None:
        self.transport.close()
        self.linger()


def _without_upgrade(headers: Iterable[tuple[bytes, bytes]]) -> Iterable[tuple[bytes, bytes]]:
    for name, value in headers:
        if name == b"connection":
            tokens = [token.strip() for token in value.split(b",")]
            value = b", ".join(token for token in tokens if token.lower() not in HOP_HEADERS)
        if name not in HOP_HEADERS and value:
            yield name, value
