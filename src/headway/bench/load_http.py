"""HTTP/1.1 on bare asyncio, for event streams: one parser per connection, no object per chunk."""

import asyncio
import time
from dataclasses import dataclass
from typing import cast
from urllib.parse import urlsplit

import httptools

from headway.bench.load_try import Try, seconds_of
from headway.core.errors import InvalidRequest

BODY_LIMIT = 64 * 1024  # bytes kept of an answer that is no stream
CONNECT_S = 10.0

clock = time.perf_counter  # uvloop's own has milliseconds only


class Connection(asyncio.Protocol):
    """Serves one Try at a time."""

    def __init__(self, pool: "Pool") -> None:
        self._pool = pool
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._try: Try | None = None
        self._now = 0.0
        self._framed = False  # the answer says where it ends
        self._heard = False  # a byte of the answer has come
        self.closed = False

    def send(self, request: bytes, attempt: Try) -> None:
        assert self._transport is not None
        assert self._try is None
        self._try = attempt
        self._framed = self._heard = False
        self._transport.write(request)

    def abort(self) -> None:
        self._try = None
        self.closed = True
        if self._transport is not None:
            self._transport.abort()

    # asyncio
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in behaviour only

    def data_received(self, data: bytes) -> None:
        self._now = clock()
        self._heard = True
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._end("bad_http", reuse=False)

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        self._pool.forget(self)
        attempt = self._try
        if attempt is not None:
            self._now = clock()
            whole = exc is None and attempt.status != 0 and not self._framed
            self._end(None if whole else "connection_lost" if self._heard else "no_answer", reuse=False)

    # httptools
    def on_message_begin(self) -> None:
        self._framed = False

    def on_header(self, name: bytes, value: bytes) -> None:
        attempt = self._try
        if attempt is None:
            return
        name = name.lower()
        if name == b"content-type":
            attempt.streaming = value.lower().startswith(b"text/event-stream")
        elif name in (b"content-length", b"transfer-encoding"):
            self._framed = True
        elif name == b"retry-after-ms":
            attempt.retry_after_s = seconds_of(value, 1000) or attempt.retry_after_s
        elif name == b"retry-after" and attempt.retry_after_s is None:
            attempt.retry_after_s = seconds_of(value, 1)

    def on_headers_complete(self) -> None:
        if self._try is not None:
            self._try.status = self._parser.get_status_code()
            self._try.streaming = self._try.streaming and self._try.accepted

    def on_body(self, body: bytes) -> None:
        attempt = self._try
        if attempt is None:
            return
        if attempt.streaming:
            attempt.stream.feed(body, self._now)
        elif len(attempt.body) < BODY_LIMIT:
            attempt.body += body

    def on_message_complete(self) -> None:
        if self._try is not None and self._try.status >= 200:
            self._end(None, reuse=self._parser.should_keep_alive())

    def _end(self, broken: str | None, *, reuse: bool) -> None:
        attempt, self._try = self._try, None
        if not reuse:
            self.abort()
        if attempt is not None:
            attempt.finish(self._now, broken)


@dataclass(frozen=True, slots=True)
class Address:
    host: str
    port: int
    prefix: str  # of every path

    @classmethod
    def parse(cls, url: str) -> "Address":
        """http://host[:port][/prefix]; /v1 is added unless the prefix ends in it."""
        parts = urlsplit(url if "://" in url else f"http://{url}")
        if parts.scheme == "https":
            raise InvalidRequest("bench load speaks plain HTTP: its timing must not include TLS. Give an http:// url")
        try:
            port = parts.port or 80
        except ValueError:
            port = 0
        if parts.scheme != "http" or not parts.hostname or not port:
            raise InvalidRequest(f"{url!r} is not a url such as http://127.0.0.1:8000")
        prefix = parts.path.rstrip("/")
        return cls(parts.hostname, port, prefix if prefix.endswith("/v1") else f"{prefix}/v1")

    def head(self, method: str, path: str, api_key: str | None) -> bytes:
        """The request line and the headers that never change, without the empty line."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        lines = [f"{method} {self.prefix}{path} HTTP/1.1", f"Host: {host}:{self.port}", "User-Agent: headway-bench"]
        if api_key:
            lines.append(f"Authorization: Bearer {api_key}")
        return "\r\n".join([*lines, ""]).encode()


class Pool:
    """At most `limit` connections; idle ones are used again, the latest first."""

    def __init__(self, address: Address, limit: int) -> None:
        self._address = address
        self._idle: list[Connection] = []
        self._slots = asyncio.Semaphore(limit)

    async def send(self, request: bytes, attempt: Try, timeout_s: float) -> None:
        """Fills `attempt`. Waiting for a place in the pool is the client's lateness, connecting is the server's."""
        async with self._slots:
            attempt.started = clock()
            attempt.intended = min(attempt.intended, attempt.started)  # a timer may ring a millisecond early
            try:
                async with asyncio.timeout(timeout_s):
                    if not await self._exchange(request, attempt, self._reuse()):
                        attempt.error, attempt.resent = None, True
                        await self._exchange(request, attempt, None)
            except TimeoutError:
                attempt.error, attempt.ended = "timeout", clock()
            except OSError as error:
                attempt.error, attempt.message, attempt.ended = "connect", error.strerror or str(error), clock()

    async def _exchange(self, request: bytes, attempt: Try, idle: Connection | None) -> bool:
        """False: nothing came over the idle connection, which the server must have been closing."""
        connection = idle or await self._connect()
        attempt.done = asyncio.get_running_loop().create_future()
        connection.send(request, attempt)
        try:
            await attempt.done
        except asyncio.CancelledError:
            connection.abort()
            raise
        if not connection.closed:
            self._idle.append(connection)
        return idle is None or attempt.error != "no_answer"

    def _reuse(self) -> Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if not connection.closed:
                return connection
        return None

    async def _connect(self) -> Connection:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(CONNECT_S):
            _, connection = await loop.create_connection(
                lambda: Connection(self), self._address.host, self._address.port
            )
        return connection

    def forget(self, connection: Connection) -> None:
        if connection in self._idle:
            self._idle.remove(connection)

    def close(self) -> None:
        for connection in list(self._idle):
            connection.abort()
        self._idle.clear()
