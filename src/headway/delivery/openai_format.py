"""What OpenAI's two response formats have in common: ids, usage, and JSON that is built once per chunk."""

import time
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from headway.core.errors import HeadwayError
from headway.delivery.http_errors import error_body
from headway.delivery.openai_request import UsageOptions
from headway.delivery.stream_id import new_id
from headway.serving.text_events import Delta, Done, Started, TextEvent, Usage

encode = msgspec.json.encode
TokenBytes = Callable[[int], bytes]
DONE = b"data: [DONE]\n\n"


@dataclass(slots=True)
class Head:
    """The fields that every object of one response repeats."""

    prefix: str  # of the id
    object: str
    model: str
    fingerprint: str
    worker: int = 0  # of the API, that makes it
    service_tier: str | None = None  # the lane; None: this kind of object does not show it
    id: str = field(init=False)
    created: int = field(init=False)

    def __post_init__(self) -> None:
        self.id = new_id(f"{self.prefix}-", self.worker)
        self.created = int(time.time())

    def fields(self) -> dict[str, Any]:
        fields: dict[str, Any] = {
            "id": self.id,
            "object": self.object,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": self.fingerprint,
        }
        if self.service_tier is not None:
            fields["service_tier"] = self.service_tier
        return fields


class StreamFormat(Protocol):
    """How the events of one response become bytes of its body."""

    media_type: str
    keep_alive: bytes  # sent into a silence; empty: nothing

    def event(self, index: int, event: TextEvent) -> bytes:
        """The bytes of one event of choice `index`; empty: nothing to show."""
        ...

    def end(self) -> bytes:
        """The last bytes of a response that went well."""
        ...

    def failed(self, error: HeadwayError) -> bytes:
        """The last bytes of a response that did not."""
        ...


class WholeFormat(Protocol):
    """How the events of one response become one JSON body."""

    def add(self, index: int, event: TextEvent) -> None: ...

    def body(self) -> bytes: ...


class Totals:
    """Usage summed over the choices of one response."""

    def __init__(self, choices: int) -> None:
        self._prompt = [0] * choices
        self._cached = [0] * choices
        self._completion = [0] * choices
        self._reasoning = [0] * choices

    def started(self, index: int, started: Started) -> None:
        self._prompt[index] = started.prompt_tokens
        self._cached[index] = started.cached_tokens

    def delta(self, index: int, delta: Delta) -> None:
        self._completion[index] += len(delta.token_ids)

    def done(self, index: int, usage: Usage) -> None:
        self._prompt[index] = usage.prompt_tokens
        self._cached[index] = usage.cached_tokens
        self._completion[index] = usage.completion_tokens
        self._reasoning[index] = usage.reasoning_tokens

    def fields(self) -> dict[str, Any]:
        prompt, completion = sum(self._prompt), sum(self._completion)
        return {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
            "prompt_tokens_details": {"cached_tokens": sum(self._cached)},
            "completion_tokens_details": {"reasoning_tokens": sum(self._reasoning)},
        }


class ChunkStream:
    """The SSE stream of a response: everything around a choice's changing part is encoded once.

    Subclasses say what the changing part of a choice is.
    """

    media_type = "text/event-stream"
    keep_alive = b": keep-alive\n\n"

    def __init__(self, head: Head, choices: int, usage: UsageOptions, token_ids: bool) -> None:
        """`token_ids`: each chunk shows those of its text, and the first one those of the prompt."""
        self._usage = usage
        self._token_ids = token_ids
        self._prompts: dict[int, array[int]] = {}  # of choices that have not shown it
        self._totals = Totals(choices)
        self._base = encode(head.fields())[:-1]  # without the closing brace
        self._open = b"data: " + self._base + b',"choices":[{"index":'
        self._close = b',"usage":null}\n\n' if usage.at_end else b"}\n\n"

    def _choice_text(self, index: int, delta: Delta) -> bytes:
        """The JSON of a choice from after its index on, for new text."""
        raise NotImplementedError

    def _prompt_ids(self, index: int) -> bytes:
        """A field with the ids of the choice's prompt, once."""
        prompt = self._prompts.pop(index, None)
        return b"" if prompt is None else b',"prompt_token_ids":' + encode(prompt.tolist())

    def _choice_end(self, index: int, done: Done) -> bytes:
        """The same for its one final chunk."""
        raise NotImplementedError

    def event(self, index: int, event: TextEvent) -> bytes:
        if isinstance(event, Delta):
            choice = self._choice_text(index, event)
            if self._token_ids:
                choice += b',"token_ids":' + encode(event.token_ids)
            if self._usage.continuous:
                self._totals.delta(index, event)
        elif isinstance(event, Done):
            self._totals.done(index, event.usage)
            choice = self._choice_end(index, event)
        else:
            self._totals.started(index, event)
            if self._token_ids:
                self._prompts[index] = event.prompt
            return b""
        close = self._close
        if self._usage.continuous:
            close = b',"usage":' + encode(self._totals.fields()) + b"}\n\n"
        return b"%b%d,%b}]%b" % (self._open, index, choice, close)

    def end(self) -> bytes:
        if not self._usage.at_end:
            return DONE
        usage = b',"choices":[],"usage":' + encode(self._totals.fields()) + b"}\n\n"
        return b"data: " + self._base + usage + DONE

    def failed(self, error: HeadwayError) -> bytes:
        return b"data: " + error_body(error) + b"\n\n" + DONE

    def begin(self) -> bytes:
        return b""

    def cut_off(self, error: HeadwayError) -> bytes:
        return self.failed(error)
