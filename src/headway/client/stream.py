"""A streamed answer that survives what happens to its connection, as far as the caller wants it to."""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, Self

from headway.client.answer import Chunk, Restarted, Usage, as_chunk
from headway.client.deadline import Deadline
from headway.client.errors import (
    APIStatusError,
    CircuitOpen,
    ClientError,
    ConnectionFailed,
    DeadlineExceeded,
    StreamDropped,
    StreamFailed,
)
from headway.client.event_reader import Dropped, EventReader, chunk_of
from headway.client.position import Position
from headway.client.server import Server
from headway.client.shown import Differs
from headway.client.transcript import Transcript, choices_of
from headway.core.errors import InvalidRequest

OnDrop = Literal["resume", "retry", "unstreamed", "partial", "raise"]
Mode = Literal["text", "tokens", "events"]
Item = Chunk | Restarted | str | list[int]
GONE = (404, 410)  # the server knows the stream, or the events, no more


@dataclass(frozen=True, slots=True)
class StreamRequest:
    """`on_drop`: what to do when the stream drops; each in turn, if the one before it cannot be done."""

    path: str
    body: Mapping[str, Any]
    timeout: float | None
    idle_timeout: float
    on_drop: Sequence[OnDrop]


class AsyncStream:
    """Iterate it for text, `events()` for the chunks, or `tokens()` for token ids: one of the three. `async with` sends
    the request and, at the end, closes: a stream left early is cancelled. `text`, `finish_reason` and `usage` tell what
    has come so far. Raises ClientError, and is closed then."""

    def __init__(self, server: Server, request: StreamRequest) -> None:
        self.truncated = False  # it broke off, and the caller had chosen to keep what there is
        self._server = server
        self._request = request
        self._body = dict(request.body)
        self._choices = choices_of(self._body)
        self._said = Transcript(self._choices)
        self._position = Position()
        self._deadline: Deadline | None = None  # from the start on
        self._reader: EventReader | None = None
        self._whole: Chunk | None = None  # what an unstreamed attempt has brought
        self._mode: Mode | None = None
        self._given = False  # the caller has got something
        self._over = False
        self._resumes = 0  # since the last event
        self._restarts = 0
        self._repeat: OnDrop | None = None  # how it was started again, last
        self._vain: set[OnDrop] = set()  # what brought another answer than the first

    @property
    def text(self) -> str:
        return self._said.text

    @property
    def finish_reason(self) -> str | None:
        return self._said.finish_reason

    @property
    def usage(self) -> Usage | None:
        return self._said.usage

    async def start(self) -> None:
        """Sends the request; returns when the answer begins. Iterating does it, too."""
        if self._deadline is None:
            self._deadline = self._server.deadline(self._request.timeout)
            try:
                self._body = await self._server.with_model(self._body, self._deadline)
                await self._post(self._deadline)
            except BaseException:
                self._over = True
                raise

    async def aclose(self) -> None:
        """Ends it. A server that would go on for us is told not to."""
        self._over = True
        await self._hang_up()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def __aiter__(self) -> AsyncIterator[str]:
        self._begin("text")
        while (item := await self._next()) is not None:
            if isinstance(item, str) and item:
                yield item

    async def events(self) -> AsyncIterator[Chunk | Restarted]:
        """The chunks as the server sent them. A `Restarted` among them says that the answer begins anew."""
        self._begin("events")
        while (item := await self._next()) is not None:
            if isinstance(item, dict | Restarted):
                yield item

    async def tokens(self) -> AsyncIterator[int]:
        """Token ids; the request must ask for them with `return_token_ids=True`."""
        self._begin("tokens")
        while (item := await self._next()) is not None:
            if isinstance(item, list):
                for token in item:
                    yield token

    def _begin(self, mode: Mode) -> None:
        if self._mode not in (None, mode):
            raise InvalidRequest(f"this stream is read as {self._mode} already")
        if mode != "events" and self._choices != 1:
            raise InvalidRequest(f"there are {self._choices} answers side by side: iterate events()", param="n")
        if mode == "tokens" and not self._body.get("return_token_ids"):
            raise InvalidRequest("ask for token ids with return_token_ids=True", param="return_token_ids")
        self._mode = mode

    async def _next(self) -> Item | None:
        """The next item in the caller's way of reading; None: it is over."""
        try:
            await self.start()
            assert self._deadline is not None
            while not self._over:
                item = await self._step(self._deadline)
                if item is not None:
                    self._given = self._given or bool(item)
                    return item
        except (DeadlineExceeded, StreamFailed) as error:
            error.partial = self.text
            await self.aclose()
            raise
        except BaseException:
            await self.aclose()
            raise
        await self.aclose()
        return None

    async def _step(self, deadline: Deadline) -> Item | None:
        try:
            return await self._read()
        except Dropped as drop:
            reason = str(drop)
        except Differs:
            assert self._repeat is not None
            self._vain.add(self._repeat)
            await self._hang_up()  # it is no use to resume
            reason = "the repeated answer is a different one"
        return await self._recover(reason, deadline)

    async def _read(self) -> Item | None:
        """One event; None if there is nothing in it for the caller. Raises Dropped and Differs."""
        if self._whole is not None:
            chunk, self._whole = self._whole, None
            item = self._take(chunk)
            self._end()
            return item
        assert self._reader is not None
        event = await self._reader.next()
        if event is None:
            if not self._said.finished:
                raise Dropped("it ended without a finish_reason")
            if self._position.stream is not None:
                raise Dropped("it ended without [DONE]")
            self._end()
            return None
        done = event.data.startswith("[DONE]")
        chunk = {} if done else chunk_of(event)
        self._position.find(event, chunk.get("id"))
        if not self._position.advance(event):
            return None
        self._resumes = 0
        if done:
            self._end()
            await self._reader.drain()
            return None
        return self._take(chunk)

    def _take(self, chunk: Chunk) -> Item:
        text, ids = self._said.take(chunk, with_ids=self._mode == "tokens")
        return text if self._mode == "text" else ids if self._mode == "tokens" else chunk

    def _end(self) -> None:
        """The answer is whole."""
        if self._said.behind:
            raise Differs
        self._over = True
        self._position = Position()

    async def _recover(self, drop: str, deadline: Deadline) -> Restarted | None:
        """Does what was chosen for a drop: then there is more to read, or it is over. Raises StreamDropped."""
        await self._close_reader()
        cause: ClientError = StreamDropped(f"the stream broke off: {drop}", partial=self.text)
        for choice in self._request.on_drop:
            if choice in self._vain:
                continue
            try:
                if choice == "resume" and self._position.stream is not None:
                    await self._resume(self._position.stream, cause, deadline)
                    return None
                if self._whole_but_for_its_end:
                    break
                await self._hang_up()
                if choice == "resume" and not self._given:
                    choice = "retry"  # it dropped before it said whether it can be resumed
                if choice in ("retry", "unstreamed"):
                    return await self._again(choice, cause, deadline)
                if choice in ("partial", "raise"):
                    self.truncated = choice == "partial"
                    break
            except (APIStatusError, ConnectionFailed, CircuitOpen, StreamDropped) as error:
                cause = error
        if self.truncated or self._whole_but_for_its_end:
            self._over = True
            return None
        if isinstance(cause, StreamDropped):
            raise cause
        raise StreamDropped(f"the stream broke off: {drop}; then: {cause.message}", partial=self.text) from cause

    @property
    def _whole_but_for_its_end(self) -> bool:
        """Only usage or [DONE] is missing."""
        return self._said.finished and not self._said.behind

    async def _resume(self, stream: str, cause: ClientError, deadline: Deadline) -> None:
        """Asks for what was missed."""
        transport = self._server.transport
        if self._resumes > transport.retry.most:
            raise cause
        if self._resumes:
            await transport.timing.wait(transport.retry.backoff(self._resumes), cause, deadline)
        self._resumes += 1
        silence_s = self._request.idle_timeout
        try:
            response = await self._server.resume(stream, self._position.seen, deadline, silence_s)
        except APIStatusError as error:
            if error.status in GONE:
                self._position = Position()
            raise
        self._reader = EventReader(response, deadline, silence_s)

    async def _again(self, choice: OnDrop, cause: ClientError, deadline: Deadline) -> Restarted | None:
        """Sends the whole request once more, as a stream or not."""
        transport = self._server.transport
        if self._restarts >= transport.retry.most:
            raise cause
        self._restarts += 1
        self._repeat = choice
        await transport.timing.wait(transport.retry.backoff(self._restarts), cause, deadline)
        if choice == "unstreamed":
            body = {key: value for key, value in self._body.items() if key != "stream_options"}
            self._whole = as_chunk(await self._server.whole(self._request.path, body, deadline))
        else:
            await self._post(deadline)
        self._resumes = 0
        if self._mode != "events":
            self._said.repeat()
            return None
        self._said.void()
        return Restarted(cause.message) if self._given else None

    async def _post(self, deadline: Deadline) -> None:
        silence_s = self._request.idle_timeout
        response = await self._server.stream(self._request.path, self._body, deadline, silence_s)
        self._reader = EventReader(response, deadline, silence_s)
        kind = response.headers.get("content-type", "")
        if not kind.startswith("text/event-stream"):
            await self._close_reader()
            raise StreamFailed(f"the server answered with {kind or 'something'}, not with an event stream")

    async def _hang_up(self) -> None:
        """Leaves the attempt under way for good."""
        await self._close_reader()
        stream, self._position = self._position.stream, Position()
        if stream is not None:
            await self._server.cancel(stream)

    async def _close_reader(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            await reader.close()
