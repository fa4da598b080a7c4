"""Tools and messages of a chat request: what a schema alone cannot check, and the form that serving takes."""

import json
from collections.abc import Mapping
from typing import Any

from headway.core.config import LimitSettings
from headway.core.errors import InvalidRequest
from headway.delivery.schemas import ChatRequest, Message
from headway.delivery.tool_schemas import AllowedTools, NamedTool, Tool, ToolCall
from headway.serving.request import Toolset

_NO_PARAMETERS = {"type": "object", "properties": {}, "additionalProperties": False}


def toolset(body: ChatRequest, limits: LimitSettings) -> Toolset | None:
    """None where the model sees no tools. Raises InvalidRequest."""
    choice = body.tool_choice
    if not body.tools:
        if choice not in (None, "none", "auto"):
            raise InvalidRequest("tool_choice needs tools", param="tool_choice")
        return None
    if len(body.tools) > limits.max_tools:
        said = f"{len(body.tools)} tools; at most {limits.max_tools} are taken"
        raise InvalidRequest(said, param="tools")
    specs, size = [], 0
    for index, tool in enumerate(body.tools):
        spec = tool.model_dump(exclude_none=True, exclude={"function": {"strict"}})  # which is none of the model's
        spec["function"].setdefault("parameters", _NO_PARAMETERS)
        here = f"tools.{index}.function.parameters"
        _check_depth(tool.function.parameters, limits.max_schema_depth, here)
        size += _size_of(spec, limits.max_tool_bytes, here)
        specs.append(spec)
    _check_tools(body.tools)
    if choice == "none":
        return None
    names, required = _allowed(body, frozenset(tool.function.name for tool in body.tools))
    strict = frozenset(tool.function.name for tool in body.tools if tool.function.strict)
    parallel = body.parallel_tool_calls is not False and not isinstance(choice, NamedTool)
    return Toolset(specs, names, strict, required, parallel, size)


def template_variables(body: ChatRequest, limits: LimitSettings) -> Mapping[str, Any]:
    """Raises InvalidRequest."""
    variables = body.chat_template_kwargs or {}
    _check_depth(variables, limits.max_schema_depth, "chat_template_kwargs")
    _size_of(variables, limits.max_template_bytes, "chat_template_kwargs")
    return variables


def chat_messages(messages: list[Message]) -> list[dict[str, Any]]:
    """For the chat template. Templates know `system`; `developer` is OpenAI's newer name for it.

    Raises InvalidRequest for what a message of its role cannot have, and for a result of no call.
    """
    result = []
    calls: dict[str, str] = {}  # the function's name by the call's id
    for index, message in enumerate(messages):
        here = f"messages.{index}"
        _check_role(message, here)
        entry: dict[str, Any] = {"role": "system" if message.role == "developer" else message.role}
        entry["content"] = message.content if message.content is not None else ""
        if message.name is not None:
            entry["name"] = message.name
        if message.reasoning_content is not None:
            entry["reasoning_content"] = message.reasoning_content
        if message.tool_calls:
            entry["tool_calls"] = [
                _call(call, f"{here}.tool_calls.{n}.function.arguments") for n, call in enumerate(message.tool_calls)
            ]
            calls |= {call.id: call.function.name for call in message.tool_calls}
        if message.role == "tool":
            if message.tool_call_id not in calls:
                said = f"{here}.tool_call_id answers no call of a message before it"
                raise InvalidRequest(said, param=f"{here}.tool_call_id")
            entry = {"name": calls[message.tool_call_id], **entry, "tool_call_id": message.tool_call_id}
        result.append(entry)
    return result


def _check_role(message: Message, here: str) -> None:
    assistant, tool = message.role == "assistant", message.role == "tool"
    for field in ("tool_calls", "reasoning_content"):
        if getattr(message, field) and not assistant:
            raise InvalidRequest(f"{here}.{field}: only a message of the assistant has it", param=f"{here}.{field}")
    if message.tool_call_id is not None and not tool:
        said = f"{here}.tool_call_id: only a message of the role tool has it"
        raise InvalidRequest(said, param=f"{here}.tool_call_id")
    if message.content is None and not (assistant and (message.tool_calls or message.reasoning_content)):
        said = f"{here}.content is required"
        raise InvalidRequest(said, param=f"{here}.content", code="missing_required_parameter")


def _call(call: ToolCall, param: str) -> dict[str, Any]:
    """As templates take it. Raises InvalidRequest for arguments that are no JSON object, which they write them as."""
    function = call.function
    try:
        arguments = json.loads(function.arguments or "{}")
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"{param} are not JSON: {error}", param=param) from None
    if not isinstance(arguments, dict):
        raise InvalidRequest(f"{param} must be the JSON text of an object", param=param)
    said = {"name": function.name, "arguments": function.arguments}
    return {"id": call.id, "type": call.type, "function": said}


def _check_tools(tools: list[Tool]) -> None:
    seen = set()
    for index, tool in enumerate(tools):
        function, here = tool.function, f"tools.{index}.function"
        if function.name in seen:
            raise InvalidRequest(f"{here}.name: there are two tools {function.name!r}", param=f"{here}.name")
        seen.add(function.name)
        if (function.parameters or {}).get("type", "object") != "object":
            said = f"{here}.parameters must be a schema of type object"
            raise InvalidRequest(said, param=f"{here}.parameters")


def _allowed(body: ChatRequest, names: frozenset[str]) -> tuple[frozenset[str], bool]:
    """The tools that may be called, and whether one must be."""
    choice = body.tool_choice
    if isinstance(choice, NamedTool):
        return frozenset({_known(choice, names)}), True
    if isinstance(choice, AllowedTools):
        allowed = choice.allowed_tools
        return frozenset(_known(tool, names) for tool in allowed.tools), allowed.mode == "required"
    return names, choice == "required"


def _known(tool: NamedTool, names: frozenset[str]) -> str:
    name = tool.function.name
    if name not in names:
        raise InvalidRequest(f"tool_choice: there is no tool {name!r} in tools", param="tool_choice")
    return name


def _check_depth(value: Any, most: int, param: str) -> None:
    """Raises InvalidRequest past so many levels of objects and lists."""
    todo = [(value, 1)]
    while todo:
        part, depth = todo.pop()
        if isinstance(part, dict | list):
            if depth > most:
                raise InvalidRequest(f"{param}: nested deeper than {most} levels", param=param)
            todo += [(inner, depth + 1) for inner in (part.values() if isinstance(part, dict) else part)]


def _size_of(value: Any, most: int, param: str) -> int:
    """Characters of `value` as JSON. Raises InvalidRequest past `most` bytes, and for numbers that JSON has not."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    except ValueError:
        raise InvalidRequest(f"{param}: NaN and infinity are not JSON", param=param) from None
    if len(text) > most or len(text.encode("utf-8", "replace")) > most:
        raise InvalidRequest(f"{param} has more than {most} bytes", param=param)
    return len(text)
