"""A client for any OpenAI-compatible server that gets through refusals, lost connections and dropped streams."""

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self, get_args

from headway.client.answer import Answer, answer_of
from headway.client.deadline import Deadline
from headway.client.retry import Retry
from headway.client.server import Server
from headway.client.stream import AsyncStream, OnDrop, StreamRequest
from headway.client.transport import Timing, Transport
from headway.core.breaker import CircuitBreaker
from headway.core.errors import InvalidRequest

CHAT = "/chat/completions"
COMPLETIONS = "/completions"
TIMEOUT_S = 600.0
IDLE_S = 120.0

Messages = str | Sequence[Mapping[str, Any]]  # a string is one user message
Prompt = str | Sequence[str] | Sequence[int] | Sequence[Sequence[int]]


class AsyncClient:
    """`base_url` ends in /v1 as a rule; a url without a path gets it. `model` None: the first that the server lists.

    `timeout`: seconds for a call with all its waits and retries, told to the server too; None: no limit. Each call can
    give its own. `idle_timeout`: seconds without a byte after which a stream is taken for dropped.
    `on_drop`: what becomes of a dropped stream. "resume": it goes on where it stopped, on servers that can. "retry":
    the request is sent again; text that was given is not given twice. "unstreamed": the same, once, in one piece.
    "partial": it ends with the text there is, `truncated`. "raise": StreamDropped. `fallback` is done where `on_drop`
    cannot be. `breaker` None: one of its own, with its defaults."""

    def __init__(
        self,
        base_url: str,
        api_key: str | None = None,
        model: str | None = None,
        *,
        timeout: float | None = TIMEOUT_S,
        idle_timeout: float = IDLE_S,
        on_drop: OnDrop = "resume",
        fallback: OnDrop = "raise",
        retry: Retry | None = None,
        breaker: CircuitBreaker | None = None,
        timing: Timing | None = None,
    ) -> None:
        for name, choice in (("on_drop", on_drop), ("fallback", fallback)):
            if choice not in get_args(OnDrop):
                raise InvalidRequest(f"{name} is one of {', '.join(get_args(OnDrop))}", param=name)
        timing = timing or Timing()
        self.breaker = breaker or CircuitBreaker(timing.clock)
        self._timeout = timeout
        self._idle_timeout = idle_timeout
        self._on_drop: tuple[OnDrop, OnDrop] = (on_drop, fallback)
        self._transport = Transport(base_url, api_key, retry or Retry(), self.breaker, timing)
        self._server = Server(self._transport, model, resumable="resume" in self._on_drop)

    async def chat(  # the timeout is sent, and covers retries: no business of the caller's event loop
        self,
        messages: Messages,
        *,
        timeout: float | None = None,  # noqa: ASYNC109
        **params: Any,
    ) -> Answer:
        """The answer to a conversation. `params`: any of the API. Raises ClientError."""
        return await self._ask(CHAT, {"messages": _messages(messages), **params}, self._deadline(timeout))

    async def complete(
        self,
        prompt: Prompt,
        *,
        timeout: float | None = None,  # noqa: ASYNC109
        **params: Any,
    ) -> Answer:
        """What continues a prompt (text or token ids), as `chat`."""
        return await self._ask(COMPLETIONS, {"prompt": prompt, **params}, self._deadline(timeout))

    def stream(self, messages: Messages, *, timeout: float | None = None, **params: Any) -> AsyncStream:
        """The answer to a conversation as it comes. Nothing is sent before it is entered or iterated."""
        return self._stream(CHAT, {"messages": _messages(messages), **params}, timeout)

    def stream_complete(self, prompt: Prompt, *, timeout: float | None = None, **params: Any) -> AsyncStream:
        """What continues a prompt, as `stream`."""
        return self._stream(COMPLETIONS, {"prompt": prompt, **params}, timeout)

    async def models(self) -> list[str]:
        """Names of the models that the server lists."""
        return await self._server.models(self._deadline(None))

    async def aclose(self) -> None:
        """Closes the connections, streams under way included."""
        await self._transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def _deadline(self, timeout: float | None) -> Deadline:
        return self._server.deadline(self._timeout if timeout is None else timeout)

    async def _ask(self, path: str, body: dict[str, Any], deadline: Deadline) -> Answer:
        named = await self._server.with_model(_checked(body), deadline)
        return answer_of(await self._server.whole(path, named, deadline))

    def _stream(self, path: str, body: dict[str, Any], timeout: float | None) -> AsyncStream:
        seconds = self._timeout if timeout is None else timeout
        return AsyncStream(
            self._server, StreamRequest(path, _checked(body), seconds, self._idle_timeout, self._on_drop)
        )


def _messages(given: Messages) -> Sequence[Mapping[str, Any]]:
    return [{"role": "user", "content": given}] if isinstance(given, str) else given


def _checked(body: dict[str, Any]) -> dict[str, Any]:
    if "stream" in body:
        raise InvalidRequest("call stream() for a stream, chat() for a whole answer", param="stream")
    return body
