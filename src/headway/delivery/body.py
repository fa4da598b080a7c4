"""Reads request bodies: bounded, strictly parsed."""

from typing import TypeVar

from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect, Request

from headway.delivery.http_errors import BodyTooLarge, validation_error

Body = TypeVar("Body", bound=BaseModel)

__all__ = ["ClientDisconnect", "read_body"]


async def read_body(request: Request, kind: type[Body], limit: int) -> Body:
    """The body as `kind`. Raises BodyTooLarge, InvalidRequest and ClientDisconnect."""
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > limit:
        raise BodyTooLarge(f"the body has {declared} bytes; at most {limit} are taken")
    chunks: list[bytes] = []
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > limit:
            raise BodyTooLarge(f"the body has more than {limit} bytes")
        chunks.append(chunk)
    try:
        # pydantic's own JSON mode: no NaN where a number is bounded, no lone surrogates, depth at most 200.
        return kind.model_validate_json(b"".join(chunks))
    except ValidationError as error:
        raise validation_error(error) from None
