"""The client for code without an event loop: the same one, run in a thread."""

from collections.abc import AsyncIterator, Iterator
from types import TracebackType
from typing import Any, Self, TypedDict, TypeVar, Unpack

from headway.client.answer import Answer, Chunk, Restarted, Usage
from headway.client.async_client import AsyncClient, Messages, Prompt
from headway.client.loop_thread import LoopThread
from headway.client.retry import Retry
from headway.client.stream import AsyncStream, OnDrop
from headway.client.transport import Timing
from headway.core.breaker import CircuitBreaker

T = TypeVar("T")


class Options(TypedDict, total=False):
    """As for AsyncClient."""

    timeout: float | None
    idle_timeout: float
    on_drop: OnDrop
    fallback: OnDrop
    retry: Retry
    breaker: CircuitBreaker
    timing: Timing


class Stream:
    """AsyncStream for a `with` and a `for`."""

    def __init__(self, thread: LoopThread, stream: AsyncStream) -> None:
        self._thread = thread
        self._stream = stream

    @property
    def text(self) -> str:
        return self._stream.text

    @property
    def finish_reason(self) -> str | None:
        return self._stream.finish_reason

    @property
    def usage(self) -> Usage | None:
        return self._stream.usage

    @property
    def truncated(self) -> bool:
        return self._stream.truncated

    def __iter__(self) -> Iterator[str]:
        return self._each(aiter(self._stream))

    def events(self) -> Iterator[Chunk | Restarted]:
        return self._each(self._stream.events())

    def tokens(self) -> Iterator[int]:
        return self._each(self._stream.tokens())

    def close(self) -> None:
        self._thread.run(self._stream.aclose())

    def __enter__(self) -> Self:
        self._thread.run(self._stream.start())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _each(self, items: AsyncIterator[T]) -> Iterator[T]:
        async def advance() -> T | None:
            return await anext(items, None)

        while (item := self._thread.run(advance())) is not None:
            yield item


class Client:
    """AsyncClient for code without an event loop, or with one that it must not block. For several threads at once."""

    def __init__(
        self, base_url: str, api_key: str | None = None, model: str | None = None, **options: Unpack[Options]
    ) -> None:
        self._client = AsyncClient(base_url, api_key, model, **options)
        self._thread = LoopThread()

    @property
    def breaker(self) -> CircuitBreaker:
        return self._client.breaker

    def chat(self, messages: Messages, *, timeout: float | None = None, **params: Any) -> Answer:
        return self._thread.run(self._client.chat(messages, timeout=timeout, **params))

    def complete(self, prompt: Prompt, *, timeout: float | None = None, **params: Any) -> Answer:
        return self._thread.run(self._client.complete(prompt, timeout=timeout, **params))

    def stream(self, messages: Messages, *, timeout: float | None = None, **params: Any) -> Stream:
        return Stream(self._thread, self._client.stream(messages, timeout=timeout, **params))

    def stream_complete(self, prompt: Prompt, *, timeout: float | None = None, **params: Any) -> Stream:
        return Stream(self._thread, self._client.stream_complete(prompt, timeout=timeout, **params))

    def models(self) -> list[str]:
        return self._thread.run(self._client.models())

    def close(self) -> None:
        """Closes the connections and ends the thread. Idempotent."""
        if not self._thread.closed:
            try:
                self._thread.run(self._client.aclose())
            finally:
                self._thread.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
