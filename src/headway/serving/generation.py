"""One generation as its reader sees it: text events, taken as they come, and a clean end whatever happens."""

from array import array
from collections.abc import Callable
from typing import Literal, Protocol

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
from headway.serving.text_events import Done, Started, TextEvent, Usage
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
    """To be prepared, started, read with `take`, and closed, which cancels in the engine what has not ended.

    One with a leader has the same prompt, which counts, and is computed, once: the leader is to be started first."""

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
        self._events: list[TextEvent] = []
        self._prompt_tokens = 0
        self._cached_tokens = 0
        self._last_delta = 0.0
        self._outcome: str | None = None
        self.error: HeadwayError | None = None  # with which it failed, after the events that were taken
        self.ended = False  # no event follows those that were taken
        self.more = False  # there may be something to take at once
        self._left = False
        self._on_overflow: Callable[[], None] | None = None

    def close(self, reason: str) -> None:
        """Ends the generation now; harmless when it has ended."""
        if self._left:
            return
        self._left = self.ended = True
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

    async def prepare(self) -> None:
        """Finds out whether the request can be served, without starting it. Raises the HeadwayError that says why not;
        harmless when it is known."""
        if self._prepared is not None:
            return
        try:
            prompt, sampling = await self._opener.prepare(self._request, self.leader.prompt if self.leader else None)
        except HeadwayError as error:
            self._fail(error)
            raise
        self.prompt = prompt
        self._prepared = prompt, sampling

    def start(self, on_news: Callable[[], None]) -> None:
        """Gives it to the engine; `on_news` is called when there may be something to take. Raises HeadwayError."""
        assert self._prepared is not None, "prepare() comes first"
        prompt, sampling = self._prepared
        self._text.begin(prompt)
        leader = self.leader._stream.id if self.leader is not None and self.leader._stream is not None else None
        try:
            self._stream = self._opener.send(self._request, self.ticket, prompt, sampling, leader)
        except HeadwayError as error:
            self._fail(error)
            raise
        self._stream.on_news = on_news
        self._stream.on_overflow = self._on_overflow
        self._prompt_tokens = 0 if self.leader else len(prompt)

    def listen(self, on_news: Callable[[], None]) -> None:
        """`on_news` is called from now on, in place of the one before."""
        if self._stream is not None:
            self._stream.on_news = on_news

    def take(self, most: int) -> list[TextEvent]:
        """What at most so many emissions bring; nothing where they have no text. `more`, `ended` and `error` say how it
        goes on."""
        stream = self._stream
        if self.ended or stream is None:
            return []
        emissions = stream.take(most)
        self.more = len(emissions) == most
        try:
            for emission in emissions:
                self._take(emission)
                if self.ended:
                    break
            if stream.error is not None and not self.more and not self.ended:
                raise stream.error
        except HeadwayError as error:
            self._fail(error)
        events, self._events = self._events, []
        return events

    def _fail(self, error: HeadwayError) -> None:
        self.ended = True
        self.error = error
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
        finish = emission.finish
        if finish is not None and finish not in (Finish.STOP, Finish.LENGTH):
            raise _failure(emission)
        if emission.started:
            self._cached_tokens = 0 if self.leader else emission.cached_tokens
            assert self.prompt is not None
            self._events.append(Started(self._prompt_tokens, self._cached_tokens, self.prompt))
        if emission.tokens or finish is not None:
            delta = self._text.push(emission.tokens, emission.logprobs, finish)
            if delta is not None:
                self._clock_delta()
                self._events.append(delta)
        if self._text.stopped or finish is not None:
            self._finish("length" if finish is Finish.LENGTH and not self._text.stopped else "stop")

    def _finish(self, reason: str) -> None:
        self.ended = True
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
