"""One HTTP call: sent, sent again as `Retry` says, held back by the circuit breaker, all within one deadline."""

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx
import msgspec

from headway.client.deadline import Deadline
from headway.client.errors import APIStatusError, CircuitOpen, ClientError, ConnectionFailed, DeadlineExceeded
from headway.client.retry import Retry, retry_after
from headway.core.breaker import CircuitBreaker
from headway.core.clock import Clock, MonotonicClock
from headway.core.errors import InvalidRequest

CONNECT_S = 10.0
ERROR_SILENCE_S = 10.0  # for the body of an error
MOST_CONNECTIONS = 1024
MOST_IDLE = 64
ERROR_LIMIT = 64 * 1024  # bytes
ANSWER_LIMIT = 64 * 1024 * 1024

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Call:
    """`silence_s` bounds the wait for the first byte of the answer. Calls that are not `guarded` pass by the circuit
    breaker: they belong to work that the server has taken on already."""

    method: str
    path: str  # below the base url
    body: bytes | None = None
    silence_s: float = math.inf
    guarded: bool = True
    tells_deadline: bool = True


@dataclass(frozen=True, slots=True)
class Timing:
    """How time passes. `on_wait` is told each wait before another try, in seconds, and its reason."""

    clock: Clock = field(default_factory=MonotonicClock)
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    on_wait: Callable[[float, ClientError], None] | None = None

    async def wait(self, seconds: float, reason: ClientError, deadline: Deadline) -> None:
        """Raises `reason` where the deadline would pass meanwhile."""
        if seconds >= deadline.left():
            raise reason
        if self.on_wait is not None:
            self.on_wait(seconds, reason)
        await self.sleep(seconds)


class Transport:
    """The connections to one server. Closing it closes them."""

    def __init__(
        self, base_url: str, api_key: str | None, retry: Retry, breaker: CircuitBreaker | None, timing: Timing
    ) -> None:
        self._base = base_of(base_url)
        self.retry = retry
        self.timing = timing
        self._breaker = breaker
        self._http = httpx.AsyncClient(
            headers={"user-agent": "headway-client", **_authorization(api_key)},
            timeout=httpx.Timeout(None, connect=CONNECT_S),  # the deadline and the idle timeout bound the rest
            limits=httpx.Limits(max_connections=MOST_CONNECTIONS, max_keepalive_connections=MOST_IDLE),
        )

    async def open(self, call: Call, deadline: Deadline) -> httpx.Response:
        """A successful answer whose body is still to be read; the caller closes it. Raises ClientError."""

        async def as_it_is(response: httpx.Response) -> httpx.Response:
            return response

        return await self._with_retries(call, deadline, as_it_is)

    async def fetch(self, call: Call, deadline: Deadline) -> Any:
        """A whole JSON answer. One that breaks off is asked for again. Raises ClientError."""

        async def read(response: httpx.Response) -> Any:
            body = await _read(response, deadline, ANSWER_LIMIT)
            if len(body) > ANSWER_LIMIT:
                raise ClientError(f"{self._base} answered with more than {ANSWER_LIMIT} bytes", code="bad_answer")
            try:
                return msgspec.json.decode(body)
            except (msgspec.DecodeError, RecursionError) as error:
                raise ClientError(f"{self._base} answered with no JSON: {error}", code="bad_answer") from None

        return await self._with_retries(call, deadline, read)

    async def tell(self, call: Call, deadline: Deadline) -> None:
        """Sends once, and does not care for the answer. Raises ClientError."""
        response = await self._once(call, deadline)
        await response.aclose()

    async def close(self) -> None:
        await self._http.aclose()

    async def _with_retries(
        self, call: Call, deadline: Deadline, receive: Callable[[httpx.Response], Awaitable[T]]
    ) -> T:
        tries = 0
        while True:
            try:
                return await receive(await self._guarded(call, deadline))
            except ClientError as error:
                tries += 1
                wait = self.retry.wait(tries, error)
                if wait is None:
                    raise
                failed = error
            await self.timing.wait(wait, failed, deadline)

    async def _guarded(self, call: Call, deadline: Deadline) -> httpx.Response:
        if self._breaker is None or not call.guarded:
            return await self._once(call, deadline)
        admission = self._breaker.admit()
        if admission is None:
            raise CircuitOpen(self._breaker.retry_after)
        try:
            response = await self._once(call, deadline)
        except APIStatusError as error:
            # Any other answer, 429 included, comes from a server that is there.
            (admission.failed if error.status >= 500 else admission.succeeded)()
            raise
        except ConnectionFailed:
            admission.failed()
            raise
        except BaseException:
            admission.abandoned()
            raise
        admission.succeeded()
        return response

    async def _once(self, call: Call, deadline: Deadline) -> httpx.Response:
        try:
            async with deadline.limit(call.silence_s):
                response = await self._http.send(self._request(call, deadline), stream=True)
        except TimeoutError:
            message = f"{self._base} did not answer within {call.silence_s:g} s"
            raise ConnectionFailed(message, may_retry=False) from None
        except httpx.RequestError as error:
            raise ConnectionFailed(f"no answer from {self._base}: {reason_of(error)}") from error
        if response.is_success:
            return response
        raise await self._error(response, deadline)

    def _request(self, call: Call, deadline: Deadline) -> httpx.Request:
        headers = {}
        if call.body is not None:
            headers["content-type"] = "application/json"
        if call.tells_deadline and (seconds := deadline.header()) is not None:
            headers["x-request-timeout"] = seconds
        return self._http.build_request(call.method, self._base + call.path, content=call.body, headers=headers)

    async def _error(self, response: httpx.Response, deadline: Deadline) -> ClientError:
        lost = None
        try:
            body = await _read(response, deadline, ERROR_LIMIT, ERROR_SILENCE_S)
        except ConnectionFailed:  # what it says may decide what comes next: it is worth another try
            body, lost = b"", True
        fields = error_fields(body)
        status = response.status_code
        if status == 504 and fields["code"] == DeadlineExceeded.code:
            return DeadlineExceeded(fields["message"])
        should = response.headers.get("x-should-retry", "").lower()
        return APIStatusError(
            status,
            fields["message"] or f"HTTP {status} {response.reason_phrase}",
            code=fields["code"],
            param=fields["param"],
            request_id=response.headers.get("x-request-id"),
            retry_after=retry_after(response.headers),
            may_retry={"true": True, "false": False}.get(should, lost),
        )


async def _read(response: httpx.Response, deadline: Deadline, limit: int, silence_s: float = math.inf) -> bytes:
    """The body; of one that is longer than `limit`, some more bytes than that. Closes the response."""
    body = bytearray()
    try:
        async with deadline.limit(silence_s):
            async for data in response.aiter_bytes():
                body += data
                if len(body) > limit:
                    break
    except TimeoutError:
        raise ConnectionFailed("the answer broke off: silence") from None
    except httpx.RequestError as error:
        raise ConnectionFailed(f"the answer broke off: {reason_of(error)}") from error
    finally:
        await response.aclose()
    return bytes(body)


def base_of(url: str) -> str:
    """`url` without a slash at its end, with /v1 if it has no path. Raises InvalidRequest."""
    given = url if "://" in url else f"http://{url}"
    try:
        parts = urlsplit(given)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # the port
        usable = False
    if not usable or parts.query or parts.fragment:
        raise InvalidRequest(f"{url!r} is not a url such as http://127.0.0.1:8000/v1")
    path = parts.path.rstrip("/")
    return f"{parts.scheme}://{parts.netloc}{path or '/v1'}"


def _authorization(api_key: str | None) -> Mapping[str, str]:
    if api_key is None:
        return {}
    if not (api_key.isascii() and api_key.isprintable()):
        raise InvalidRequest("the API key has characters that no header can carry (a line break?)")
    return {"authorization": f"Bearer {api_key}"}


def reason_of(error: Exception) -> str:
    return str(error) or type(error).__name__


def error_fields(body: bytes | str) -> dict[str, Any]:
    """message, code and param of an error body, of any server: `message` always a string, the others None if absent."""
    try:
        decoded = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        text = body if isinstance(body, str) else body.decode(errors="replace")
        return {"message": text.strip()[:200], "code": None, "param": None}
    error = decoded.get("error", decoded) if isinstance(decoded, dict) else decoded
    if not isinstance(error, dict):
        return {"message": str(error), "code": None, "param": None}
    code, param = error.get("code") or error.get("type"), error.get("param")
    return {
        "message": str(error.get("message") or error.get("detail") or ""),
        "code": None if code is None else str(code),
        "param": None if param is None else str(param),
    }
