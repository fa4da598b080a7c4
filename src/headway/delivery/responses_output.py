"""The output of a response: its items as they grow, and what is told of that."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from headway.delivery.openai_format import encode
from headway.delivery.responses_items import Item
from headway.delivery.stream_id import new_id

Kind = Literal["message", "reasoning", "function_call"]
Closed = Literal["completed", "incomplete"]
Told = tuple[str, dict[str, Any]]  # an event's type and fields


@dataclass(frozen=True, slots=True)
class _Shape:
    """What is different between kinds of items."""

    prefix: str  # of ids
    delta: str  # type of the event
    done: str
    said: str  # where the text is
    part: dict[str, Any] | None  # that holds the text; None: the item itself does


SHAPES: dict[Kind, _Shape] = {
    "message": _Shape(
        "msg_",
        "response.output_text.delta",
        "response.output_text.done",
        "text",
        {"type": "output_text", "annotations": [], "logprobs": []},
    ),
    "reasoning": _Shape(
        "rs_", "response.reasoning_text.delta", "response.reasoning_text.done", "text", {"type": "reasoning_text"}
    ),
    "function_call": _Shape(
        "fc_",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "arguments",
        None,
    ),
}


@dataclass(slots=True)
class OpenItem:
    """The item that an answer is at. `fields`: what it has beside the common ones."""

    kind: Kind
    index: int  # in the output
    worker: int
    fields: dict[str, Any]
    item: Item = field(init=False)
    texts: list[str] = field(default_factory=list)
    delta: bytes = field(init=False)  # everything before the text of an event that brings some

    def __post_init__(self) -> None:
        shape = SHAPES[self.kind]
        id = new_id(shape.prefix, self.worker)
        self.item = {"id": id, "type": self.kind, "status": "in_progress", **self.fields}
        fields = {"type": shape.delta, **self._place(), "delta": ""}
        self.delta = b"event: %b\ndata: %b" % (shape.delta.encode(), encode(fields)[: -len('""}')])

    @property
    def text(self) -> str:
        return "".join(self.texts)

    def opened(self) -> Iterator[Told]:
        """Each is to be encoded before the next is asked for: they show the item as it is."""
        part = SHAPES[self.kind].part
        yield "response.output_item.added", {"output_index": self.index, "item": self.item}
        if part is not None:
            new = {**part, "text": ""}
            yield "response.content_part.added", {**self._place(), "part": new}
            self.item["content"] = [{**new, "logprobs": []} if "logprobs" in new else new]

    def closed(self, status: Closed) -> Iterator[Told]:
        """Calls whose arguments are no whole JSON are incomplete, whatever `status`."""
        self.settle(status)
        shape, place = SHAPES[self.kind], self._place()
        if shape.part is None:
            yield shape.done, {**place, "name": self.item["name"], "arguments": self.item["arguments"]}
        else:
            part = self.item["content"][0]
            said = (
                {"text": part["text"], "logprobs": part["logprobs"]} if "logprobs" in part else {"text": part["text"]}
            )
            yield shape.done, {**place, **said}
            yield "response.content_part.done", {**place, "part": part}
        yield "response.output_item.done", {"output_index": self.index, "item": self.item}

    def settle(self, status: Closed) -> None:
        """Closes it without a word."""
        self.write()
        whole = self.kind != "function_call" or _is_object(self.text)
        self.item["status"] = status if whole else "incomplete"

    def write(self) -> None:
        """Has the item show the text so far."""
        shape = SHAPES[self.kind]
        holder = self.item if shape.part is None else self.item["content"][0]
        holder[shape.said] = self.text

    def _place(self) -> dict[str, Any]:
        place = {"item_id": self.item["id"], "output_index": self.index}
        return place if SHAPES[self.kind].part is None else {**place, "content_index": 0}


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False
