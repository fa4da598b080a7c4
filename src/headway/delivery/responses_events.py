"""The answer to one request of the Responses API: its object, and the events that say how it grew."""

import time
from dataclasses import dataclass, field
from typing import Any, Literal

from headway.core.errors import HeadwayError, InvalidRequest, RequestFailed
from headway.delivery.openai_chat import chat_logprobs
from headway.delivery.openai_format import TokenBytes, encode
from headway.delivery.responses_items import Item
from headway.delivery.stream_id import new_id
from headway.serving.text_events import Delta, Done, Started, TextEvent, Usage

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
        "output_tokens_details": {"reasoning_tokens": 0},
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
        self._item: Item | None = None  # open; the last of the output
        self._texts: list[str] = []  # of its open part, joined when that closes
        self._delta = b""  # everything before the text of a delta of it
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
            return self._text(event)
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
        data = self._open_message() if not self.response.output else b""
        cut = self._done.finish_reason == "length"
        data += self._close("incomplete" if cut else "completed")
        self.response.usage = self._done.usage
        return data + self._finish("incomplete" if cut else "completed")

    def failed(self, error: HeadwayError) -> bytes:
        """The last event; the object then says what went wrong, or that it was cancelled."""
        data = self.begin()
        if self._item is not None:
            self._settle("incomplete")
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
        if self._item is not None and self._texts:
            _write(self._item, "".join(self._texts))
        return encode(self.response.fields())

    # The parts of an answer.

    def _text(self, delta: Delta) -> bytes:
        data = b"" if self._item is not None else self._open_message()
        assert self._item is not None
        self._texts.append(delta.text)
        logprobs: Any = []
        if delta.logprobs is not None:
            logprobs = chat_logprobs(delta.token_ids, delta.logprobs, self._token_bytes)["content"]
            self._item["content"][0]["logprobs"] += logprobs
        self._next += 1
        return b'%b%b%b,"logprobs":%b,"sequence_number":%d}\n\n' % (
            data,
            self._delta,
            encode(delta.text),
            encode(logprobs) if logprobs else b"[]",
            self._next - 1,
        )

    def _open_message(self) -> bytes:
        item: Item = {
            "id": new_id("msg_", self._worker),
            "type": "message",
            "status": "in_progress",
            "role": "assistant",
            "content": [],
        }
        self.response.output.append(item)
        self._item, self._texts = item, []
        part = {"type": "output_text", "annotations": [], "logprobs": [], "text": ""}
        place = self._place()
        data = self._event("response.output_item.added", {"output_index": place["output_index"], "item": item})
        data += self._event("response.content_part.added", {**place, "part": part})
        item["content"].append({**part, "logprobs": []})
        kind = "response.output_text.delta"
        self._delta = b"event: %b\ndata: %b" % (kind.encode(), encode({"type": kind, **place, "delta": ""})[:-3])
        return data

    def _close(self, status: Literal["completed", "incomplete"]) -> bytes:
        if self._item is None:
            return b""
        place, item = self._place(), self._settle(status)
        part = item["content"][0]
        said = {"text": part["text"], "logprobs": part["logprobs"]}
        data = self._event("response.output_text.done", {**place, **said})
        data += self._event("response.content_part.done", {**place, "part": part})
        return data + self._event("response.output_item.done", {"output_index": place["output_index"], "item": item})

    def _settle(self, status: Literal["completed", "incomplete"]) -> Item:
        assert self._item is not None
        item, self._item = self._item, None
        _write(item, "".join(self._texts))
        item["status"] = status
        return item

    def _place(self) -> dict[str, Any]:
        assert self._item is not None
        return {"item_id": self._item["id"], "output_index": len(self.response.output) - 1, "content_index": 0}

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


def _write(item: Item, text: str) -> None:
    item["content"][0]["text"] = text
