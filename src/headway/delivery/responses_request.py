"""From a body of the Responses API to serving's Request: by way of a chat's, so that both mean the same."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from pydantic import ValidationError

from headway.core.config import LimitSettings
from headway.core.errors import ContextOverflow, InvalidRequest
from headway.delivery.caller import Caller
from headway.delivery.http_errors import validation_error
from headway.delivery.openai_request import chat_requests
from headway.delivery.responses_items import Message, turns
from headway.delivery.responses_schema import FunctionTool, PromptFields, ResponseRequest, TextFormat
from headway.delivery.schemas import ChatRequest
from headway.serving.frontend import Frontend
from headway.serving.request import ChatPrompt, Request, Timing

LOGPROBS = "message.output_text.logprobs"
SAME = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "presence_penalty",
    "frequency_penalty",
    "seed",
    "stop",
    "on_timeout",
    "service_tier",
    "user",
)
SHOWN_OF_TOOLS = {"type", "name", "description", "parameters", "strict"}
# What a chat calls a field, and what it is called here.
NAMES = {
    "messages": "input",
    "max_completion_tokens": "max_output_tokens",
    "max_tokens": "max_output_tokens",
    "response_format.json_schema": "text.format",
    "response_format": "text.format",
    "reasoning_effort": "reasoning.effort",
}


def serving_request(
    body: ResponseRequest, messages: list[Message], limits: LimitSettings, timing: Timing, caller: Caller
) -> Request:
    """Raises InvalidRequest in this API's words."""
    given = {name: getattr(body, name) for name in SAME}
    given["max_completion_tokens"] = body.max_output_tokens
    if wants_logprobs(body):
        given |= {"logprobs": True, "top_logprobs": body.top_logprobs or 0}
    return _request(body, given, messages, limits, timing, caller)


def prompt_of(body: PromptFields, messages: list[Message], limits: LimitSettings, caller: Caller) -> ChatPrompt:
    """What `body` would have the model read. Raises InvalidRequest in this API's words."""
    prompt = _request(body, {}, messages, limits, Timing(0.0), caller).prompt
    assert isinstance(prompt, ChatPrompt)
    return prompt


def _request(
    body: PromptFields,
    given: dict[str, Any],
    messages: list[Message],
    limits: LimitSettings,
    timing: Timing,
    caller: Caller,
) -> Request:
    if not any(message["role"] != "system" for message in messages):
        raise InvalidRequest("input is required", param="input", code="missing_required_parameter")
    given |= {"messages": messages, "response_format": _chat_format(body.text.format if body.text else None)}
    given["reasoning_effort"] = body.reasoning and body.reasoning.effort
    given["tools"] = [_chat_tool(tool) for tool in body.tools] if body.tools else None
    given["tool_choice"] = _chat_choice(body.tool_choice)
    given["parallel_tool_calls"] = body.parallel_tool_calls
    with in_own_words():
        try:
            chat = ChatRequest.model_validate({name: value for name, value in given.items() if value is not None})
        except ValidationError as error:
            raise validation_error(error) from None
        return chat_requests(chat, limits, timing, caller)[0]


def response_head(body: ResponseRequest, model: str, asked: Request, stored: bool) -> dict[str, Any]:
    """What the response object repeats of its request, with the defaults that counted."""
    form = body.text and body.text.format
    reasoning = body.reasoning
    return {
        "background": bool(body.background),
        "frequency_penalty": asked.sampling.frequency_penalty,
        "instructions": body.instructions,
        "max_output_tokens": body.max_output_tokens,
        "max_tool_calls": body.max_tool_calls,
        "metadata": body.metadata or {},
        "model": model,
        "parallel_tool_calls": body.parallel_tool_calls is not False,
        "presence_penalty": asked.sampling.presence_penalty,
        "previous_response_id": body.previous_response_id,
        "prompt_cache_key": body.prompt_cache_key,
        "reasoning": {"effort": reasoning and reasoning.effort, "summary": reasoning and reasoning.summary},
        "safety_identifier": body.safety_identifier,
        "service_tier": asked.lane.label,
        "store": stored,
        "temperature": asked.sampling.temperature,
        "text": {"format": form.model_dump(by_alias=True, exclude_none=True) if form else {"type": "text"}},
        "tool_choice": body.tool_choice or "auto",
        "tools": [tool.model_dump(by_alias=True, include=SHOWN_OF_TOOLS) for tool in body.tools or ()],
        "top_logprobs": body.top_logprobs or 0,
        "top_p": asked.sampling.top_p,
        "truncation": body.truncation or "disabled",
        "user": body.user,
    }


def wants_logprobs(body: ResponseRequest) -> bool:
    return LOGPROBS in (body.include or ()) or bool(body.top_logprobs)


@contextmanager
def in_own_words() -> Iterator[None]:
    """Has InvalidRequest name fields as they are called here."""
    try:
        yield
    except InvalidRequest as error:
        param = own_name(error.param)
        if param != error.param:
            error.message = error.message.replace(str(error.param), str(param))
            error.param = param
        raise


def own_name(param: str | None) -> str | None:
    if param is None:
        return None
    if param.startswith("messages."):
        return "input"  # messages are not items one by one
    if param.startswith("tools."):
        return param.replace(".function.", ".")
    for chat, own in NAMES.items():
        if param == chat or param.startswith(f"{chat}."):
            return own + param.removeprefix(chat)
    return param


async def fitted(
    frontend: Frontend, body: PromptFields, messages: list[Message], limits: LimitSettings, caller: Caller, room: int
) -> list[Message]:
    """`messages` without so many of the oldest turns that `room` tokens are left in the context.

    Raises ContextOverflow where the last turn alone is too long.
    """
    head, parted = turns(messages)

    def without(dropped: int) -> list[Message]:
        return [*head, *(message for turn in parted[dropped:] for message in turn)]

    async def fits(dropped: int) -> bool:
        prompt = prompt_of(body, without(dropped), limits, caller)
        return len(await frontend.tokenize(prompt)) + room <= frontend.context

    if not parted or await fits(0):
        return messages
    low, high = 1, len(parted) - 1  # dropped turns; the last one stays
    if high < low or not await fits(high):
        raise ContextOverflow(
            f"the last turn does not fit this model's context of {frontend.context} tokens"
            f" with {room} tokens left for the answer",
            param="input",
        )
    while low < high:
        middle = (low + high) // 2
        if await fits(middle):
            high = middle
        else:
            low = middle + 1
    return without(low)


def _chat_format(form: TextFormat | None) -> dict[str, Any] | None:
    if form is None:
        return None
    named = {"name": form.name, "description": form.description, "schema": form.schema_, "strict": form.strict}
    schema = {name: value for name, value in named.items() if value is not None}
    if form.type != "json_schema":
        if schema:
            param = f"text.format.{min(schema)}"
            raise InvalidRequest(f"{param} goes with type json_schema only", param=param)
        return {"type": form.type}
    for required in ("name", "schema"):
        if required not in schema:
            param = f"text.format.{required}"
            raise InvalidRequest(f"{param} is required", param=param, code="missing_required_parameter")
    return {"type": "json_schema", "json_schema": schema}


def _chat_tool(tool: FunctionTool) -> dict[str, Any]:
    named = {"name": tool.name, "description": tool.description, "parameters": tool.parameters, "strict": tool.strict}
    return {"type": "function", "function": {name: value for name, value in named.items() if value is not None}}


def _chat_choice(choice: Any) -> Any:
    if not isinstance(choice, dict):
        return choice
    rest: dict[str, Any] = {name: value for name, value in choice.items() if name != "type"}
    if choice["type"] == "allowed_tools":
        rest["tools"] = [_chat_choice(tool) for tool in _listed(rest.get("tools"))]
    return {"type": choice["type"], choice["type"]: rest}


def _listed(tools: Any) -> Sequence[dict[str, Any]]:
    if not isinstance(tools, list) or not all(isinstance(t, dict) and t.get("type") == "function" for t in tools):
        raise InvalidRequest("tool_choice.tools must be a list of functions", param="tool_choice.tools")
    return tools
