"""The answer to one request of the Responses API: its object, and the events that say how it grew."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from headway.core.errors import HeadwayError, InvalidRequest, RequestFailed
from headway.delivery.openai_chat import chat_logprobs
from headway.delivery.openai_format import TokenBytes, encode
from headway.delivery.responses_items import Item
from headway.delivery.responses_output import Closed, Kind, OpenItem
from headway.serving.text_events import (
    AnswerDelta,
    CallStart,
    Content,
    Delta,
    Done,
    Reasoning,
    Started,
    TextEvent,
    Usage,
)

Status = Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]


@dataclass(slots=True)
class ResponseObject:
    """OpenAI's response object as it is now."""

    id: str
    head: dict[str, Any]  # what does not change
    status: Status
    output: list[Item] = field(default_factory=list)
    usage: Usage | None = None
    error: HeadwayError | None = None
    created: int = field(default_factory=lambda: int(time.time()))
    completed: int | None = None

    def fields(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": "response",
            "created_at": self.created,
            "status": self.status,
            "completed_at": self.completed,
            "error": None if self.error is None else {"code": self.error.code, "message": self.error.message},
            "incomplete_details": {"reason": "max_output_tokens"} if self.status == "incomplete" else None,
            "output": self.output,
            "usage": None if self.usage is None else usage_fields(self.usage),
            **self.head,
        }


def usage_fields(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }


class ResponseEvents:
    """Makes the object grow, as a stream of typed events numbered from 0 or as a whole."""

    media_type = "text/event-stream"
    keep_alive = b": keep-alive\n\n"

    def __init__(self, response: ResponseObject, worker: int, token_bytes: TokenBytes) -> None:
        self.response = response
        self._worker = worker
        self._token_bytes = token_bytes
        self._next = 0  # sequence number
        self._begun = False
        self._item: OpenItem | None = None  # the last of the output
        self._done: Done | None = None

    def begin(self) -> bytes:
        """The first events: of one that waits, `response.queued` comes between."""
        if self._begun:
            return b""
        self._begun = True
        created = self._whole("response.created")
        if self.response.status == "queued":
            return created + self._whole("response.queued")
        return created + self._whole("response.in_progress")

    def event(self, index: int, event: TextEvent) -> bytes:
        if isinstance(event, Delta):
            return self._delta(event)
        if isinstance(event, Done):
            self._done = event
            return b""
        assert isinstance(event, Started)
        return self._start()

    def _start(self) -> bytes:
        waited = self.response.status == "queued"
        self.response.status = "in_progress"
        return self._whole("response.in_progress") if waited and self._begun else self.begin()

    def end(self) -> bytes:
        assert self._done is not None
        data = b"" if self.response.output else self._into("message")  # an answer of no words
        cut = self._done.finish_reason == "length"
        data += self._close("incomplete" if cut else "completed")
        self.response.usage = self._done.usage
        return data + self._finish("incomplete" if cut else "completed")

    def nothing(self) -> bytes:
        """All events of a response without output."""
        self.response.usage = Usage(0, 0, 0)
        return self.begin() + self._finish("completed")

    def failed(self, error: HeadwayError) -> bytes:
        """The last event; the object then says what went wrong, or that it was cancelled."""
        data = self.begin()
        if self._item is not None:
            self._item.settle("incomplete")
            self._item = None
        if isinstance(error, RequestFailed) and error.code == "cancelled":
            return data + self._finish("cancelled", "response.failed")
        self.response.error = error
        return data + self._finish("failed")

    def cut_off(self, error: HeadwayError) -> bytes:
        """For one reader who cannot go on: an event beside the others, which has no number of its own."""
        param = error.param if isinstance(error, InvalidRequest) else None
        fields = {"code": error.code, "message": error.message, "param": param, "sequence_number": self._next}
        return b"event: error\ndata: " + encode({"type": "error", **fields}) + b"\n\n"

    # As a whole.

    def add(self, index: int, event: TextEvent) -> None:
        self.event(index, event)

    def body(self) -> bytes:
        """The object. Of a generation that has ended well but not been closed, the end."""
        if self._done is not None and self.response.completed is None and self.response.error is None:
            self.end()
        return self.snapshot()

    def snapshot(self) -> bytes:
        """The object as it is now."""
        if self._item is not None:
            self._item.write()
        return encode(self.response.fields())

    # The parts of an answer.

    def _delta(self, delta: Delta) -> bytes:
        logprobs: list[Any] = []
        if delta.logprobs is not None:
            logprobs = chat_logprobs(delta.token_ids, delta.logprobs, self._token_bytes)["content"]
        if not isinstance(delta, AnswerDelta):
            return self._into("message") + self._grow(delta.text, logprobs)
        data = b""
        for part in delta.parts:
            if isinstance(part, Content):  # log probabilities of what is no text of a message are not shown
                data += self._into("message") + self._grow(part.text, logprobs)
                logprobs = []
            elif isinstance(part, Reasoning):
                data += self._into("reasoning") + self._grow(part.text)
            elif isinstance(part, CallStart):
                data += self._open("function_call", {"call_id": part.id, "name": part.name, "arguments": ""})
            else:
                data += self._grow(part.text)
        if logprobs and not delta.parts and self._item is not None and self._item.kind == "message":
            data += self._grow("", logprobs)
        return data

    def _into(self, kind: Literal["message", "reasoning"]) -> bytes:
        if self._item is not None and self._item.kind == kind:
            return b""
        fields: dict[str, Any] = {"role": "assistant"} if kind == "message" else {"summary": []}
        return self._open(kind, {**fields, "content": []})

    def _grow(self, text: str, logprobs: Sequence[Any] = ()) -> bytes:
        item = self._item
        assert item is not None
        item.texts.append(text)
        more = b""
        if item.kind == "message":
            item.item["content"][0]["logprobs"] += logprobs
            more = b',"logprobs":%b' % (encode(logprobs) if logprobs else b"[]")
        self._next += 1
        return b'%b%b%b,"sequence_number":%d}\n\n' % (item.delta, encode(text), more, self._next - 1)

    def _open(self, kind: Kind, fields: dict[str, Any]) -> bytes:
        data = self._close("completed")
        output = self.response.output
        self._item = OpenItem(kind, len(output), self._worker, fields)
        output.append(self._item.item)
        return data + b"".join(self._event(*told) for told in self._item.opened())

    def _close(self, status: Closed) -> bytes:
        if self._item is None:
            return b""
        item, self._item = self._item, None
        return b"".join(self._event(*told) for told in item.closed(status))

    def _finish(self, status: Status, kind: str | None = None) -> bytes:
        self.response.status = status
        if status == "completed":
            self.response.completed = int(time.time())
        return self._whole(kind or f"response.{status}")

    def _whole(self, kind: str) -> bytes:
        return self._event(kind, {"response": self.response.fields()})

    def _event(self, kind: str, fields: dict[str, Any]) -> bytes:
        data = encode({"type": kind, **fields, "sequence_number": self._next})
        self._next += 1
        return b"event: %b\ndata: %b\n\n" % (kind.encode(), data)
