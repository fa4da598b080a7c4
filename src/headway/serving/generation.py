"""One generation as its reader sees it: an async iterator of text events that cleans up after itself."""

from array import array
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Literal, Protocol, Self

from headway.core.errors import (
    DeadlineExceeded,
    EngineUnavailable,
    HeadwayError,
    InvalidRequest,
    Overloaded,
    RequestFailed,
)
from headway.core.events import Emission, Finish
from headway.core.sampling import Sampling
from headway.observability.metrics import Metrics
from headway.serving.emission_stream import EmissionStream
from headway.serving.gate import Ticket
from headway.serving.request import Request
from headway.serving.text_events import Delta, Done, Started, TextEvent, Usage
from headway.serving.text_stream import TextStream


class Opener(Protocol):
    """What a generation needs of the frontend."""

    def now(self) -> float: ...

    async def prepare(self, request: Request, prompt: "array[int] | None") -> "tuple[array[int], Sampling]":
        """Tokenises the request, unless its ids are known, and checks what can only be checked then."""
        ...

    def send(
        self, request: Request, ticket: Ticket, prompt: "array[int]", sampling: Sampling, leader: int | None
    ) -> EmissionStream:
        """Gives the prepared request to the engine; returns its emissions."""
        ...

    def text_stream(self, request: Request) -> TextStream: ...

    def left(self, ticket: Ticket) -> None:
        """Called once, however the generation ended."""
        ...


class Generation:
    """Iterate inside `async with`; leaving it, by whatever way, cancels in the engine what has not ended.

    One with a leader has the same prompt, which counts, and is computed, once: the leader is to be read first."""

    def __init__(
        self,
        opener: Opener,
        request: Request,
        ticket: Ticket,
        metrics: Metrics,
        leader: "Generation | None" = None,
    ) -> None:
        self._opener = opener
        self._now = opener.now
        self._request = request
        self.ticket = ticket
        self.leader = leader
        self.prompt: array[int] | None = None  # once it is tokenised
        self._metrics = metrics
        self._text = opener.text_stream(request)
        self._prepared: tuple[array[int], Sampling] | None = None
        self._stream: EmissionStream | None = None
        self._events: deque[TextEvent] = deque()
        self._prompt_tokens = 0
        self._cached_tokens = 0
        self._last_delta = 0.0
        self._outcome: str | None = None
        self._ended = False
        self._left = False
        self._on_overflow: Callable[[], None] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close("disconnect")

    def close(self, reason: str) -> None:
        """Ends the generation now; harmless when it has ended."""
        if self._left:
            return
        self._left = self._ended = True
        if self._stream is not None:
            self._stream.close(reason)
        self._opener.left(self.ticket)
        self._metrics.finished(self._outcome or "cancelled", self._prompt_tokens, self._text.tokens)
        self._metrics.total(self._now() - self._request.arrival)

    def on_overflow(self, callback: Callable[[], None]) -> None:
        """`callback` is called when the reader has fallen too far behind, while it may be stuck in a send."""
        self._on_overflow = callback
        if self._stream is not None:
            self._stream.on_overflow = callback

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> TextEvent:
        """The next event. Raises the HeadwayError with which the generation failed."""
        while not self._events:
            if self._ended:
                raise StopAsyncIteration
            try:
                stream = self._stream or await self._open()
                self._take(stream.take() or await stream.get())
            except HeadwayError as error:
                self._fail(error)
                raise
        event = self._events.popleft()
        if isinstance(event, Delta):
            self._clock_delta()
        return event

    async def prepare(self) -> None:
        """Finds out whether the request can be served, without starting it. Raises the HeadwayError that says why not.

        For who reads several generations as one; the first read does the same."""
        try:
            self._prepared = await self._prepare()
        except HeadwayError as error:
            self._fail(error)
            raise

    async def _open(self) -> EmissionStream:
        prompt, sampling = self._prepared or await self._prepare()
        self._prepared = None
        self._text.begin(prompt)
        leader = self.leader._stream.id if self.leader is not None and self.leader._stream is not None else None
        self._stream = self._opener.send(self._request, self.ticket, prompt, sampling, leader)
        self._stream.on_overflow = self._on_overflow
        self._prompt_tokens = 0 if self.leader else len(prompt)
        return self._stream

    async def _prepare(self) -> "tuple[array[int], Sampling]":
        self.prompt, sampling = await self._opener.prepare(self._request, self.leader.prompt if self.leader else None)
        return self.prompt, sampling

    def _fail(self, error: HeadwayError) -> None:
        self._ended = True
        self._outcome = _outcome(error)

    def _clock_delta(self) -> None:
        now = self._now()
        if self._last_delta:
            self._metrics.gap(now - self._last_delta)
        else:
            self._metrics.first_token(now - self._request.arrival)
        self._last_delta = now

    def _take(self, emission: Emission) -> None:
        """Turns one emission into events."""
        if emission.started:
            self._cached_tokens = 0 if self.leader else emission.cached_tokens
            assert self.prompt is not None
            self._events.append(Started(self._prompt_tokens, self._cached_tokens, self.prompt))
        finish = emission.finish
        if finish is not None and finish not in (Finish.STOP, Finish.LENGTH):
            raise _failure(emission)
        if emission.tokens or finish is not None:
            delta = self._text.push(emission.tokens, emission.logprobs, finish)
            if delta is not None:
                self._events.append(delta)
        if self._text.stopped or finish is not None:
            self._finish("length" if finish is Finish.LENGTH and not self._text.stopped else "stop")

    def _finish(self, reason: str) -> None:
        self._ended = True
        self._outcome = reason
        if self._stream is not None:
            self._stream.close("stop string")
        text = self._text
        usage = Usage(self._prompt_tokens, text.tokens, self._cached_tokens, text.reasoning_tokens)
        end: Literal["stop", "length"] = "length" if reason == "length" else "stop"
        self._events.append(Done("tool_calls" if text.called else end, usage))


def _failure(emission: Emission) -> HeadwayError:
    detail = emission.detail
    if emission.finish is Finish.REFUSED:
        return Overloaded(detail or "the queue is full", retry_after_s=emission.retry_after_s)
    if emission.finish is Finish.EXPIRED:
        return DeadlineExceeded(detail or "the request's deadline passed")
    if emission.finish is Finish.CANCELLED:
        return EngineUnavailable(detail or "the engine is shutting down", code="cancelled")
    return RequestFailed(detail or "the engine could not compute this request")


def _outcome(error: HeadwayError) -> str:
    if isinstance(error, InvalidRequest):
        return "invalid"
    if isinstance(error, Overloaded):
        return "refused"
    if isinstance(error, DeadlineExceeded):
        return "expired"
    return "unavailable" if isinstance(error, EngineUnavailable) else "failed"
