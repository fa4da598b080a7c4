"""uvicorn's HTTP/1.1 with what it lacks: a bound on headers, OpenAI's error shape, and deafness to `Upgrade` but where
there is a WebSocket."""

from collections.abc import Callable, Iterable
from typing import cast

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from headway.core.errors import HeadwayError
from headway.delivery.http_errors import HeadTooLarge, MalformedHttp, error_response
from headway.delivery.websocket import WEBSOCKETS

# Request line, headers, trailers and the framing of chunks. Without a bound a header without end takes all memory,
# and all time, since it is copied with every piece of it that comes.
MOST_HEAD = 256 << 10
TOO_LONG = HeadTooLarge(f"headers and the like have more than {MOST_HEAD} bytes")
CONNECTION = "headway.connection"  # key in the ASGI scope: the HttpProtocol
HOP_HEADERS = (b"upgrade", b"http2-settings")


class HttpProtocol(HttpToolsProtocol):
    """One connection."""

    _head = 0  # bytes of the current request that were not body
    _news = 0  # the same, of what has just come
    on_room: Callable[[], None] | None = None  # called when the connection is no longer full

    def data_received(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        self._news = len(data)
        self._head += self._news
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            if self._head > MOST_HEAD:
                self._refuse(TOO_LONG)
            elif self._is_websocket():
                self.handle_websocket_upgrade()
            else:
                self._ignore_upgrade(data[upgrade.args[0] :])
        except httptools.HttpParserError:
            self._refuse(MalformedHttp("this is not a valid HTTP/1.1 request"))
        else:
            if self._head > MOST_HEAD:
                self._refuse(TOO_LONG)

    def on_message_begin(self) -> None:
        self._head = self._news
        super().on_message_begin()
        cast(dict[str, object], self.scope)[CONNECTION] = self

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
        """Answers below the application, and hangs up."""
        response = error_response(error)
        lines = [b"HTTP/1.1 %d " % response.status_code]
        lines += [name + b": " + value for name, value in response.raw_headers]
        self.transport.write(b"\r\n".join(lines) + b"\r\n\r\n" + bytes(response.body))
        self.transport.close()


def _without_upgrade(headers: Iterable[tuple[bytes, bytes]]) -> Iterable[tuple[bytes, bytes]]:
    for name, value in headers:
        if name == b"connection":
            tokens = [token.strip() for token in value.split(b",")]
            value = b", ".join(token for token in tokens if token.lower() not in HOP_HEADERS)
        if name not in HOP_HEADERS and value:
            yield name, value
