"""The one table from the tree of errors to HTTP, and OpenAI's error body."""

import logging
import math
from collections.abc import Sequence
from json import JSONDecoder
from typing import Any

import msgspec
from pydantic import ValidationError
from pydantic_core import ErrorDetails
from starlette.responses import Response

from headway.core.errors import (
    ContextOverflow,
    DeadlineExceeded,
    EngineUnavailable,
    HeadwayError,
    InvalidRequest,
    Overloaded,
    PromiseImpossible,
    RequestFailed,
    Unauthorized,
    UnknownModel,
)

log = logging.getLogger(__name__)


class BodyTooLarge(InvalidRequest):
    """The request body exceeds settings.server.max_body_bytes; the rest of it is not read."""

    code = "body_too_large"


class MalformedHttp(InvalidRequest):
    """What came is not HTTP; there is no telling where the next request begins."""

    code = "malformed_http"


class HeadTooLarge(InvalidRequest):
    """Request line, headers and whatever else is not body exceed their bound."""

    code = "headers_too_large"


class LateRequest(HeadwayError):
    """The request did not come whole in the time it has."""

    code = "request_timeout"


class TooManyConnections(EngineUnavailable):
    """The server has as many connections as it may."""

    code = "too_many_connections"


class NoSuchRoute(InvalidRequest):
    """The path or method does not exist."""

    code = "not_found"


class NoSuchStream(InvalidRequest):
    """No stream of this id can be resumed with this key: unknown, over for too long, or somebody else's."""

    code = "stream_not_found"


class NoSuchResponse(InvalidRequest):
    """No response of this id is stored for this key: unknown, expired, deleted, or somebody else's."""

    code = "response_not_found"


class EventsExpired(InvalidRequest):
    """The stream is there, but the events asked for are not kept any more."""

    code = "events_expired"


# Most specific class first in an error's own ancestry wins: (status, OpenAI's "type").
TABLE: dict[type[HeadwayError], tuple[int, str]] = {
    HeadwayError: (500, "server_error"),
    InvalidRequest: (400, "invalid_request_error"),
    ContextOverflow: (400, "invalid_request_error"),
    PromiseImpossible: (400, "invalid_request_error"),
    BodyTooLarge: (413, "invalid_request_error"),
    MalformedHttp: (400, "invalid_request_error"),
    HeadTooLarge: (431, "invalid_request_error"),
    LateRequest: (408, "timeout_error"),
    UnknownModel: (404, "invalid_request_error"),
    NoSuchRoute: (404, "invalid_request_error"),
    NoSuchStream: (404, "invalid_request_error"),
    NoSuchResponse: (404, "invalid_request_error"),
    EventsExpired: (410, "invalid_request_error"),
    Unauthorized: (401, "authentication_error"),
    Overloaded: (429, "rate_limit_error"),
    DeadlineExceeded: (504, "timeout_error"),
    EngineUnavailable: (503, "service_unavailable_error"),
    RequestFailed: (500, "server_error"),
}


def status_of(error: HeadwayError) -> int:
    return _row(error)[0]


def _row(error: HeadwayError) -> tuple[int, str]:
    return next(TABLE[kind] for kind in type(error).__mro__ if kind in TABLE)


def error_body(error: HeadwayError) -> bytes:
    """OpenAI's error object as JSON, all four fields always there; serialisable whatever the client had sent."""
    fields = {
        "message": _clean(error.message),
        "type": _row(error)[1],
        "param": _clean(error.param) if isinstance(error, InvalidRequest) and error.param is not None else None,
        "code": error.code,
    }
    return msgspec.json.encode({"error": fields})


def _clean(text: str) -> str:
    return text.encode("utf-8", "replace").decode()  # a lone surrogate has no UTF-8


def error_response(error: HeadwayError) -> Response:
    status = status_of(error)
    headers = {"content-type": "application/json"}
    if isinstance(error, Overloaded | EngineUnavailable):
        headers["retry-after"] = str(max(1, math.ceil(error.retry_after_s)))
        headers["retry-after-ms"] = str(max(1, math.ceil(error.retry_after_s * 1000)))
    elif isinstance(error, InvalidRequest | Unauthorized):
        headers["x-should-retry"] = "false"
    if status == 401:
        headers["www-authenticate"] = "Bearer"
    if isinstance(error, BodyTooLarge | HeadTooLarge | MalformedHttp | LateRequest | TooManyConnections):
        headers["connection"] = "close"  # what is left of the request will not be read
    return Response(error_body(error), status, headers)


def bare_response(error: HeadwayError) -> bytes:
    """The same as it is sent by who has no application to do it."""
    response = error_response(error)
    lines = [b"HTTP/1.1 %d " % response.status_code]
    lines += [name + b": " + value for name, value in response.raw_headers]
    return b"\r\n".join(lines) + b"\r\n\r\n" + bytes(response.body)


def as_headway_error(error: Exception) -> HeadwayError:
    """Any exception as one of ours; an unforeseen one is logged, and its text stays inside."""
    if isinstance(error, HeadwayError):
        return error
    log.error("unforeseen error", exc_info=error)
    return HeadwayError("internal error; the server's log says more")


def validation_error(error: ValidationError) -> InvalidRequest:
    """The first thing that is wrong with a body, with the path of the field as the client spelled it."""
    # A body can have ten thousands of faults. As JSON they cost a fifth of what they cost as objects, and only the
    # first is read back.
    faults = error.json(include_url=False, include_input=False)
    first, _ = JSONDecoder().raw_decode(faults, len("["))
    return first_error([first])


def first_error(details: Sequence[ErrorDetails]) -> InvalidRequest:
    """The first of pydantic's complaints in OpenAI's words."""
    first = details[0]
    param = _path(first["loc"])
    kind = first["type"]
    if kind == "json_invalid":
        return InvalidRequest(f"the body is not JSON: {first['ctx']['error']}", code="invalid_json")
    if kind == "extra_forbidden":
        return InvalidRequest(f"unknown parameter: {param}", param=param, code="unknown_parameter")
    if kind == "missing":
        return InvalidRequest(f"{param} is required", param=param, code="missing_required_parameter")
    if kind == "model_type" and not first["loc"]:
        return InvalidRequest("the body must be a JSON object", code="invalid_type")
    code = "unsupported_parameter" if kind == "unsupported" else _code(kind)
    return InvalidRequest(f"{param}: {first['msg']}", param=param or None, code=code)


def _code(kind: str) -> str:
    return "invalid_type" if kind.endswith("_type") else "invalid_value"


def _path(parts: tuple[Any, ...]) -> str:
    """("messages", 0, "content") as "messages.0.content"; pydantic's notes in between are not the client's spelling."""
    if parts[:1] == ("query",):
        parts = parts[1:]
    names = [str(p) for p in parts if not (isinstance(p, str) and "[" in p.removesuffix("[]"))]
    return ".".join(names)[:200]
