"""One sending of a request: when, and what came back."""

import asyncio
import time
from contextlib import suppress
from email.utils import parsedate_to_datetime

import msgspec

from headway.bench.load_sse import SseCounter, error_text

REFUSALS = (429, 503)


class Try:
    """One sending of a request, and what came back. Times are seconds of `clock`; 0 means never."""

    __slots__ = (
        "body", "done", "ended", "error", "intended", "message", "resent", "retry_after_s", "started", "status",
        "stream", "streaming",
    )  # fmt: skip

    def __init__(self, intended: float, *, chat: bool) -> None:
        self.intended = intended
        self.started = 0.0  # when the client had time, and a connection, for it
        self.ended = 0.0
        self.status = 0
        self.streaming = False
        self.retry_after_s: float | None = None
        self.stream = SseCounter(chat=chat)
        self.body = b""  # if no stream
        self.error: str | None = None  # its kind, one word
        self.message = ""
        self.resent = False  # the server had closed the idle connection
        self.done: asyncio.Future[None] | None = None

    @property
    def refused(self) -> bool:
        return self.status in REFUSALS

    @property
    def accepted(self) -> bool:
        return self.status == 200

    @property
    def ok(self) -> bool:
        return self.accepted and self.error is None and self.ended > 0

    @property
    def tokens(self) -> int:
        """By the server's count; if it tells none, by chunks with text."""
        stated = self.stream.completion_tokens
        return self.stream.chunks if stated is None else stated

    def finish(self, now: float, broken: str | None = None) -> None:
        """The answer has ended, or `broken` says how it was cut."""
        self.ended = now
        if self.streaming:
            self.stream.close(now)
            if self.stream.error is not None:
                self.error, self.message = "error_event", self.stream.error
            elif broken is not None:
                self.error = broken
            elif not self.stream.finish:
                self.error, self.message = "truncated", "the stream ended without a finish_reason"
            elif not self.stream.chunks:
                self.error = "no_text"
        elif broken is not None:
            self.error = broken
        elif not self.accepted:
            if not self.refused:
                self.error = f"http_{self.status}"
            self.message = _message(self.body)
        else:
            self.error = "not_a_stream"
        if self.done is not None and not self.done.done():
            self.done.set_result(None)


def _message(body: bytes) -> str:
    try:
        return error_text(msgspec.json.decode(body))
    except msgspec.DecodeError:
        return body[:200].decode(errors="replace")


def seconds_of(value: bytes, per_second: int) -> float | None:
    """Seconds, from a number or from an HTTP date; None if it is neither."""
    text = value.decode("latin-1").strip()
    with suppress(ValueError):
        return max(0.0, float(text) / per_second)
    with suppress(ValueError):
        return max(0.0, parsedate_to_datetime(text).timestamp() - time.time())
    return None
