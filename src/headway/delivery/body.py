"""Reads request bodies: bounded, strictly parsed."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import TypeVar

from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect, Request

from headway.core.errors import InvalidRequest
from headway.delivery.http_errors import BodyTooLarge, validation_error

Body = TypeVar("Body", bound=BaseModel)

# What a body may consist of. Validating takes up to 0.4 us per value and several times that per string, list or
# object, in one go and under the GIL, so all streams wait for it: 8 MiB of hostile JSON would hold them up for seconds.
MOST_PARTS = 32_768  # strings (keys too), lists and objects
MOST_VALUES = 262_144  # numbers and everything else between commas
LINGER_BYTES = 64 << 20  # of a body that is too large, read on only for the sake of the answer
LINGER_S = 5.0

__all__ = ["ClientDisconnect", "read_body", "read_bytes"]


async def read_bytes(request: Request, limit: int) -> bytes:
    """The body as it came. Raises BodyTooLarge and ClientDisconnect."""
    declared = request.headers.get("content-length", "")
    stream = request.stream()
    if declared.isdecimal() and int(declared) > limit:
        await _discard(stream)
        raise BodyTooLarge(f"the body has {declared} bytes; at most {limit} are taken")
    chunks: list[bytes] = []
    size = 0
    async for chunk in stream:
        size += len(chunk)
        if size > limit:
            await _discard(stream)
            raise BodyTooLarge(f"the body has more than {limit} bytes")
        chunks.append(chunk)
    return b"".join(chunks)


async def _discard(stream: AsyncIterator[bytes]) -> None:
    """Reads on for a while. A client that is still sending when the connection is closed never sees the answer: what it
    sends then is met by a reset."""
    size = 0
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(LINGER_S):
            async for chunk in stream:
                size += len(chunk)
                if size > LINGER_BYTES:
                    return


async def read_body(request: Request, kind: type[Body], limit: int) -> Body:
    """The body as `kind`. Raises BodyTooLarge, InvalidRequest and ClientDisconnect."""
    return parse_body(await read_bytes(request, limit), kind)


def parse_body(data: bytes, kind: type[Body]) -> Body:
    """JSON as `kind`. Raises InvalidRequest."""
    check_parts(data)
    try:
        # pydantic's own JSON mode: no NaN where a number is bounded, no lone surrogates, depth at most 200.
        return kind.model_validate_json(data)
    except ValidationError as error:
        raise validation_error(error) from None


def check_parts(data: bytes) -> None:
    """Raises InvalidRequest for JSON of too many parts; counts without parsing, at memory speed."""
    if len(data) < MOST_PARTS:
        return
    if data.count(b",") <= MOST_VALUES and _parts(data, data.count(b'"')) <= MOST_PARTS:
        return  # not even with all that is inside of strings
    if b"\\" in data:
        data = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    quotes = data.count(b'"')
    if quotes // 2 <= MOST_PARTS:
        outside = b"".join(data.split(b'"')[::2])
        if outside.count(b",") <= MOST_VALUES and _parts(outside, quotes) <= MOST_PARTS:
            return
    raise InvalidRequest(
        f"the body has more than {MOST_PARTS} strings, lists and objects, or {MOST_VALUES} values",
        code="body_too_complex",
    )


def _parts(data: bytes, quotes: int) -> int:
    return quotes // 2 + data.count(b"[") + data.count(b"{")
