"""Items of the Responses API: as they are kept and listed, and as messages of a chat. Pure."""

import base64
import binascii
import json
from collections.abc import Sequence
from typing import Any

from headway.core.errors import InvalidRequest
from headway.delivery.responses_item_schema import (
    CompactionItem,
    FunctionCallItem,
    FunctionCallOutputItem,
    MessageItem,
    ReasoningItem,
)
from headway.delivery.stream_id import new_id

Item = dict[str, Any]
Message = dict[str, Any]
Given = MessageItem | FunctionCallItem | FunctionCallOutputItem | ReasoningItem | CompactionItem
SUMMARY = "Summary of the conversation before:\n"
_PREFIX = "hw1."  # of what is kept in a compaction item


def input_items(given: str | Sequence[Given] | None, worker: int) -> list[Item]:
    """A request's own input, each item with an id, in the form that is kept and listed. Raises InvalidRequest."""
    if given is None:
        return []
    if isinstance(given, str):
        return [_message("user", given, new_id("msg_", worker))]
    for index, item in enumerate(given):
        if isinstance(item, FunctionCallItem) and not _is_object(item.arguments):
            here = f"input.{index}.arguments"
            raise InvalidRequest(f"{here} must be the JSON text of an object", param=here)
    return [_kept(item, worker) for item in given]


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text or "{}"), dict)
    except (ValueError, RecursionError):
        return False


def _kept(item: Given, worker: int) -> Item:
    if isinstance(item, MessageItem):
        return _message(item.role, item.content, item.id or new_id("msg_", worker))
    if isinstance(item, FunctionCallItem):
        return {
            "id": item.id or new_id("fc_", worker),
            "type": "function_call",
            "status": "completed",
            "call_id": item.call_id,
            "name": item.name,
            "arguments": item.arguments,
        }
    if isinstance(item, FunctionCallOutputItem):
        return {
            "id": item.id or new_id("fco_", worker),
            "type": "function_call_output",
            "status": "completed",
            "call_id": item.call_id,
            "output": item.output,
        }
    if isinstance(item, ReasoningItem):
        content = [part.model_dump() for part in item.content or ()]
        summary = [part.model_dump() for part in item.summary]
        return {
            "id": item.id or new_id("rs_", worker),
            "type": "reasoning",
            "status": "completed",
            "summary": summary,
            "content": content,
        }
    read_compaction(item.encrypted_content)
    return {
        "id": item.id or new_id("cmp_", worker),
        "type": "compaction",
        "encrypted_content": item.encrypted_content,
    }


def _message(role: str, text: str, id: str) -> Item:
    part: Item = {"type": "input_text", "text": text}
    if role == "assistant":
        part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    return {"id": id, "type": "message", "status": "completed", "role": role, "content": [part]}


def chat_messages(instructions: str | None, items: Sequence[Item]) -> list[Message]:
    """For the chat template.

    What the model has thought and called joins the message of the assistant that it belongs to. All that is said to the
    model before anybody speaks is one system message, for many templates know only one. Raises InvalidRequest.
    """
    _check_results(items)
    messages: list[Message] = []
    if instructions is not None:
        messages.append({"role": "system", "content": instructions})
    turn: Message | None = None  # of the assistant, still open
    for item in items:
        kind = item["type"]
        if (kind == "message" and item["role"] != "assistant") or kind in ("function_call_output", "compaction"):
            turn = None
            messages.append(_plain(item))
            continue
        if turn is None or kind == "reasoning" or (kind == "message" and turn["content"] is not None):
            turn = {"role": "assistant", "content": None}
            messages.append(turn)
        if kind == "message":
            turn["content"] = _text(item)
        elif kind == "reasoning":
            turn["reasoning_content"] = "\n".join(part["text"] for part in item.get("content") or ())
        else:
            function = {"name": item["name"], "arguments": item["arguments"]}
            call = {"id": item["call_id"], "type": "function", "function": function}
            turn.setdefault("tool_calls", []).append(call)
    return _one_system([_closed(message) for message in messages])


def _check_results(items: Sequence[Item]) -> None:
    calls = set()
    for item in items:
        if item["type"] == "function_call":
            calls.add(item["call_id"])
        elif item["type"] == "function_call_output" and item["call_id"] not in calls:
            raise InvalidRequest(f"input: no function_call before has the call_id {item['call_id']!r}", param="input")


def _plain(item: Item) -> Message:
    if item["type"] == "function_call_output":
        return {"role": "tool", "tool_call_id": item["call_id"], "content": item["output"]}
    if item["type"] == "compaction":
        return {"role": "system", "content": SUMMARY + read_compaction(item["encrypted_content"])}
    return {"role": "system" if item["role"] == "developer" else item["role"], "content": _text(item)}


def _text(item: Item) -> str:
    return "\n".join(part.get("text", part.get("refusal", "")) for part in item["content"])


def _closed(message: Message) -> Message:
    if message.get("reasoning_content") == "":
        del message["reasoning_content"]
    if message["content"] is None and "tool_calls" not in message:
        message["content"] = ""
    return message


def _one_system(messages: list[Message]) -> list[Message]:
    first = next((i for i, message in enumerate(messages) if message["role"] != "system"), len(messages))
    if first < 2:
        return messages
    text = "\n\n".join(message["content"] for message in messages[:first])
    return [{"role": "system", "content": text}, *messages[first:]]


def turns(messages: Sequence[Message]) -> tuple[list[Message], list[list[Message]]]:
    """What is said to the model before anybody speaks, and the turns: each begins with a message of the user."""
    first = next((i for i, message in enumerate(messages) if message["role"] != "system"), len(messages))
    parted: list[list[Message]] = []
    for message in messages[first:]:
        if message["role"] == "user" or not parted:
            parted.append([])
        parted[-1].append(message)
    return list(messages[:first]), parted


def compaction(summary: str, id: str) -> Item:
    """An item that holds the summary of a conversation. Not a secret: its reader has the conversation itself."""
    held = base64.b64encode(json.dumps({"summary": summary}).encode()).decode()
    return {"id": id, "type": "compaction", "encrypted_content": _PREFIX + held}


def read_compaction(held: str) -> str:
    """The summary in one. Raises InvalidRequest for what this server has not made."""
    try:
        if held.startswith(_PREFIX):
            summary = json.loads(base64.b64decode(held.removeprefix(_PREFIX), validate=True))["summary"]
            if isinstance(summary, str):
                return summary
    except (binascii.Error, ValueError, KeyError, TypeError, RecursionError):
        pass
    raise InvalidRequest("encrypted_content is not of a compaction item that this server has made", param="input")


def page(items: Sequence[Item], limit: int, order: str, after: str | None) -> Item:
    """OpenAI's list object. Raises InvalidRequest where there is no item of id `after`."""
    listed = list(items) if order == "asc" else list(reversed(items))
    if after is not None:
        ids = [item["id"] for item in listed]
        if after not in ids:
            raise InvalidRequest("there is no such item in this response", param="after")
        listed = listed[ids.index(after) + 1 :]
    data = listed[:limit]
    return {
        "object": "list",
        "data": data,
        "first_id": data[0]["id"] if data else "",
        "last_id": data[-1]["id"] if data else "",
        "has_more": len(listed) > limit,
    }
