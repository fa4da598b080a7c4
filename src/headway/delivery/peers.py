"""The other API workers of this server: a stream is resumed by the one that makes it."""

import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from headway.core.errors import EngineUnavailable
from headway.delivery.body import read_bytes
from headway.delivery.disconnect import until_disconnect
from headway.delivery.http_errors import error_response

if TYPE_CHECKING:
    import httpx

CONNECT_S = 5.0
HOP_HEADERS = frozenset(
    (b"connection", b"keep-alive", b"transfer-encoding", b"te", b"upgrade", b"host", b"content-length")
)


class Peers:
    """`ports`: where each worker listens for the others, on this machine; empty if there is one worker only."""

    def __init__(self, ports: Sequence[int], worker: int) -> None:
        self._ports = ports
        self._worker = worker
        self._client = _make_client() if ports else None

    def other(self, worker: int) -> bool:
        """Whether `worker` is one of the others."""
        return worker != self._worker and worker < len(self._ports)

    async def forward(self, request: Request, worker: int, limit: int) -> Response:
        """What the other worker answers to the same request. Raises BodyTooLarge past `limit` bytes."""
        assert self._client is not None
        url = self._client.base_url.copy_with(port=self._ports[worker], raw_path=_target(request.scope))
        headers = [(k, v) for k, v in request.headers.raw if k not in HOP_HEADERS]
        body = await read_bytes(request, limit)
        return _Forwarded(self._client, self._client.build_request(request.method, url, headers=headers, content=body))

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aclose()


def _make_client() -> "httpx.AsyncClient":
    import httpx  # late: a server of one worker starts sooner without it

    # No limit on reading: the stream's own timeouts end what is silent for too long.
    timeout = httpx.Timeout(None, connect=CONNECT_S)
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=16)
    return httpx.AsyncClient(base_url="http://127.0.0.1", timeout=timeout, limits=limits, trust_env=False)


def _target(scope: Scope) -> bytes:
    path: bytes = scope["raw_path"]
    query: bytes = scope["query_string"]
    return path + b"?" + query if query else path


class _Forwarded(Response):
    def __init__(self, client: "httpx.AsyncClient", request: "httpx.Request") -> None:
        super().__init__()
        self._client = client
        self._request = request

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await until_disconnect(receive, self._pass(scope, receive, send))

    async def _pass(self, scope: Scope, receive: Receive, send: Send) -> None:
        import httpx

        try:
            response = await self._client.send(self._request, stream=True)
        except httpx.TransportError:
            gone = EngineUnavailable("the worker that makes this stream cannot be reached", code="worker_unavailable")
            await error_response(gone)(scope, receive, send)
            return
        async with contextlib.aclosing(response):
            headers = [(k.lower(), v) for k, v in response.headers.raw if k.lower() not in HOP_HEADERS]
            headers = [(k, v) for k, v in headers if k != b"x-request-id"]  # this worker answers with its own
            await send({"type": "http.response.start", "status": response.status_code, "headers": headers})
            # If the other side breaks off, so does this: an exception here cuts the connection.
            async for data in _raw(response):
                await send({"type": "http.response.body", "body": data, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _raw(response: "httpx.Response") -> AsyncIterator[bytes]:
    async for data in response.aiter_raw():
        yield data
