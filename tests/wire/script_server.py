"""A server that says what a test has written down: one answer for each request, byte by byte, and then cuts."""

import asyncio
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec
from socket_server import finish, reset, serving

Ending = Literal["whole", "fin", "reset", "silence", "alive"]
ALIVE_S = 0.02
SSE = {"content-type": "text/event-stream; charset=utf-8"}


@dataclass(frozen=True)
class Reply:
    """`ending`: the body ends as HTTP says; or FIN, RST, nothing more, or comments without end, in its middle. Without
    a status the connection ends before an answer."""

    body: bytes = b""
    status: int | None = 200
    headers: dict[str, str] = field(default_factory=dict)
    ending: Ending = "whole"


@dataclass(frozen=True)
class Seen:
    method: str
    path: str
    headers: dict[str, str]
    body: Any


@dataclass
class Script:
    url: str
    seen: list[Seen] = field(default_factory=list)
    arrivals: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))

    @property
    def bodies(self) -> list[Any]:
        return [seen.body for seen in self.seen]


def stream(*events: str, ending: Ending = "whole", rest: bytes = b"") -> Reply:
    """`rest`: bytes after the last whole event."""
    body = b"".join(event.encode() + b"\n\n" for event in events) + rest
    return Reply(body, headers=SSE, ending=ending)


def whole(body: object, status: int = 200, **headers: str) -> Reply:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply(msgspec.json.encode(body), status, {"content-type": "application/json", **named})


def error(status: int, message: str = "no", param: str | None = None, code: str | None = None, **headers: str) -> Reply:
    fields = {"message": message, "type": "some_error", "param": param, "code": code}
    return whole({"error": fields}, status, **headers)


@contextmanager
def script_server(replies: Sequence[Reply]) -> Iterator[Script]:
    """Requests beyond the script get 501 with x-should-retry: false."""
    left = list(replies)
    script = Script("")

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        script.seen.append(await _request(reader))
        script.arrivals.release()
        default = error(501, "the script has ended", x_should_retry="false")
        await _send(writer, left.pop(0) if left else default)

    with serving(handle) as port:
        script.url = f"http://127.0.0.1:{port}/v1"
        yield script


async def _request(reader: asyncio.StreamReader) -> Seen:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.strip().split("\r\n")
    method, path, _ = first.split(" ")
    headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
    content = await reader.readexactly(int(headers.get("content-length", "0")))
    return Seen(method, path, headers, msgspec.json.decode(content) if content else None)


async def _send(writer: asyncio.StreamWriter, reply: Reply) -> None:
    if reply.status is not None:
        headers = {**reply.headers, "transfer-encoding": "chunked", "connection": "close"}
        lines = [f"HTTP/1.1 {reply.status} Words", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
        writer.write("\r\n".join(lines).encode())
        _chunk(writer, reply.body)
    await writer.drain()
    if reply.ending == "whole":
        writer.write(b"0\r\n\r\n" if reply.status is not None else b"")
        await finish(writer)
    elif reply.ending == "fin":
        await finish(writer)
    elif reply.ending == "reset":
        await asyncio.sleep(ALIVE_S)  # what was sent is read first
        reset(writer)
    while reply.ending in ("silence", "alive"):
        await asyncio.sleep(ALIVE_S)
        if reply.ending == "alive":
            _chunk(writer, b": keep-alive\n\n")
            await writer.drain()


def _chunk(writer: asyncio.StreamWriter, data: bytes) -> None:
    if data:
        writer.write(b"%x\r\n%b\r\n" % (len(data), data))
