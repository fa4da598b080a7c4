"""Counts the tokens of one event stream as its bytes arrive, wherever the network cuts them.

A chunk with text costs four byte searches; only the rare others (role, finish, usage, error, spaced JSON) are parsed.
"""

from array import array
from typing import Any

import msgspec

_CR, _LF = 13, 10
_QUOTE = 34
_TEXTS = ("content", "reasoning_content", "reasoning", "refusal")


class SseCounter:
    """Times are seconds of whatever clock `feed` is given. Chunks without text move nothing but the flags."""

    __slots__ = (
        "_after_cr", "_data", "_event", "_marker", "_rest", "chunks", "completion_tokens", "done", "error", "finish",
        "first", "gaps", "last", "prompt_tokens",
    )  # fmt: skip

    def __init__(self, *, chat: bool) -> None:
        self._marker = b'"content":"' if chat else b'"text":"'
        self._rest = b""  # a line that has not ended
        self._after_cr = False  # a leading LF belongs to the CR before it
        self._data: list[bytes] = []  # of the event under way
        self._event = b""
        self.chunks = 0  # with text
        self.first = 0.0
        self.last = 0.0
        self.gaps: array[float] = array("d")  # seconds between chunks with text
        self.finish = False
        self.done = False  # [DONE] was seen
        self.error: str | None = None
        self.prompt_tokens: int | None = None
        self.completion_tokens: int | None = None

    def feed(self, data: bytes, now: float) -> None:
        """Bytes of the body that arrived at `now`."""
        if self._after_cr and data[:1] == b"\n":
            data = data[1:]
            self._after_cr = False
        if not data:
            return
        end = data[-1]
        self._after_cr = end == _CR
        if self._rest:
            data = self._rest + data
        lines = data.splitlines()  # of bytes: at LF, CR and CRLF only
        self._rest = b"" if end in (_LF, _CR) else lines.pop()
        for line in lines:
            if line:
                self._line(line)
            elif self._data:
                self._dispatch(now)
            else:
                self._event = b""

    def close(self, now: float) -> None:
        """The body has ended. An event that lacks only its blank line counts, as it does for most clients."""
        if self._rest:
            self._line(self._rest)
            self._rest = b""
        if self._data:
            self._dispatch(now)

    def _line(self, line: bytes) -> None:
        if line.startswith(b"data:"):
            self._data.append(line[6:] if line[5:6] == b" " else line[5:])
        elif line.startswith(b"event:"):
            self._event = line[6:].strip()

    def _dispatch(self, now: float) -> None:
        data = self._data[0] if len(self._data) == 1 else b"\n".join(self._data)
        self._data.clear()
        event, self._event = self._event, b""
        at = data.find(self._marker)
        if at >= 0 and data[at + len(self._marker)] != _QUOTE and not event and b'"usage":{' not in data:
            if b'"finish_reason":"' in data:
                self.finish = True
            self._count(now)
        else:
            self._parse(data, event, now)

    def _count(self, now: float) -> None:
        if self.chunks:
            self.gaps.append(now - self.last)
        else:
            self.first = now
        self.last = now
        self.chunks += 1

    def _parse(self, data: bytes, event: bytes, now: float) -> None:
        if data.startswith(b"[DONE]"):
            self.done = True
            return
        try:
            body = msgspec.json.decode(data)
        except msgspec.DecodeError:
            self.error = "not JSON"
            return
        if not isinstance(body, dict):
            self.error = "not an object"
        elif event == b"error" or body.get("error"):
            self.error = error_text(body)
        else:
            self._usage(body.get("usage"))
            choices = body.get("choices") or ()
            if any(choice.get("finish_reason") for choice in choices):
                self.finish = True
            if any(map(_has_text, choices)):
                self._count(now)

    def _usage(self, usage: Any) -> None:
        if isinstance(usage, dict):
            self.prompt_tokens = usage.get("prompt_tokens")
            self.completion_tokens = usage.get("completion_tokens")


def _has_text(choice: dict[str, Any]) -> bool:
    delta = choice.get("delta")
    if delta is None:
        return bool(choice.get("text"))
    return any(delta.get(key) for key in _TEXTS) or bool(delta.get("tool_calls"))


def error_text(body: Any) -> str:
    """The type or code, and the message, of an error body of any server."""
    error = body.get("error", body) if isinstance(body, dict) else body
    if isinstance(error, dict):
        kind = error.get("code") or error.get("type")
        message = error.get("message") or error.get("detail") or ""
        return f"{kind}: {message}" if kind else str(message)
    return str(error)
