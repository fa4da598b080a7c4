"""A call there and its result back in every family's format, through the chat templates of real models."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from openai import BadRequestError
from server_rig import Rig, make_rig
from test_tools_wire import TOOLS, streamed, user, whole

TEMPLATES = Path(__file__).parents[1] / "unit" / "model" / "templates"
ARGUMENTS = '{"city": "Paris"}'
OBJECT = f'{{"name": "get_weather", "arguments": {ARGUMENTS}}}'
HERMES = f"<tool_call>\n{OBJECT}\n</tool_call>"
LLAMA_CALL = OBJECT.replace("arguments", "parameters")
# Writes calls as Llama 3 does, one an answer.
LLAMA = """{%- for m in messages %}{%- if loop.first and tools %}{{ tools | tojson }}{% endif %}
{{- '<|start_header_id|>' + m.role + '<|end_header_id|>\n\n' }}
{%- if m.tool_calls %}{{- '{"name": "' + m.tool_calls[0].function.name + '", "parameters": ' }}
{{- m.tool_calls[0].function.arguments | tojson }}{{- '}' }}{%- else %}{{- m.content }}{% endif %}<|eot_id|>
{%- endfor %}"""
FAMILIES: dict[str, tuple[str, tuple[str, ...], str]] = {
    "qwen2.5": ("Qwen-Qwen2.5-7B-Instruct", (), HERMES),
    "qwen3": ("Qwen-Qwen3-0.6B", (), f"<think>\nHm.\n</think>\n\n{HERMES}"),
    "special-think": ("Qwen-Qwen3-0.6B", ("<think>", "</think>"), f"<think>\nHm.\n</think>\n\n{HERMES}"),
    "qwq": ("Qwen-QwQ-32B", ("<think>", "</think>"), HERMES),
    "mistral-nemo": (
        "mistralai-Mistral-Nemo-Instruct-2407",
        ("[TOOL_CALLS]",),
        f"[TOOL_CALLS][{OBJECT}]",
    ),
    "mistral-small": (
        "Mistral-Small-3.2-24B-Instruct-2506",
        ("[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"),
        f"[TOOL_CALLS]get_weather[ARGS]{ARGUMENTS}",
    ),
    "deepseek-distill": ("deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", ("<think>", "</think>"), HERMES),
    "llama": ("", ("<|python_tag|>",), LLAMA_CALL),
    "llama-tag": ("", ("<|python_tag|>",), f"<|python_tag|>{LLAMA_CALL}"),
}


@pytest.fixture(scope="module", params=FAMILIES)
def family_rig(request: pytest.FixtureRequest) -> Iterator[Rig]:
    name, specials, call = FAMILIES[request.param]
    template = (TEMPLATES / f"{name}.jinja").read_text() if name else LLAMA

    def answers(prompt: str) -> str:
        return '{"ok": true}' if "DATA" in prompt else "It is sunny there." if "SUN" in prompt else call

    size = {"context": 8192, "blocks": 1024}
    with make_rig(answers=answers, template=template, extra_specials=specials, runner=size) as rig:
        yield rig
        rig.wait_idle()


@pytest.mark.parametrize("choice", ["auto", "required", {"type": "function", "function": {"name": "get_weather"}}])
@pytest.mark.parametrize("strict", [False, True])
def test_there_and_back(family_rig: Rig, choice: Any, strict: bool) -> None:
    function = TOOLS[0]["function"]
    function = {**function, "strict": strict, "parameters": {**function["parameters"], "additionalProperties": False}}
    tools = [{"type": "function", "function": function}]
    first = whole(family_rig, "weather?", tools=tools, tool_choice=choice, parallel_tool_calls=False)
    assert (first.finish_reason, first.message.content) == ("tool_calls", None)
    [call] = first.message.tool_calls
    assert (call.function.name, call.function.arguments) == ("get_weather", ARGUMENTS)
    parts = streamed(family_rig, "weather?", tools=tools, tool_choice=choice, parallel_tool_calls=False)
    assert (parts["finish"], parts["calls"]) == ("tool_calls", [["get_weather", ARGUMENTS]])
    assert parts["reasoning"] == (getattr(first.message, "reasoning_content", None) or "")
    result = {"role": "tool", "tool_call_id": call.id, "content": "SUN"}
    messages = [*user("weather?"), first.message.model_dump(), result]
    second = family_rig.openai.chat.completions.create(model="tiny", messages=messages, tools=tools)  # type: ignore[arg-type]
    assert second.choices[0].message.content == "It is sunny there."
    assert second.choices[0].finish_reason == "stop"


def test_calls_that_nobody_asked_for(family_rig: Rig) -> None:
    """They are content."""
    message = whole(family_rig, "weather?").message
    assert message.tool_calls is None and ARGUMENTS in message.content


def test_tools_beside_a_response_format(family_rig: Rig) -> None:
    """The answer is either; where a call could not be told from JSON, the request is refused."""
    form: Any = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"const": {"ok": True}}}}
    if family_rig.text.answer_format.calls.bare:
        with pytest.raises(BadRequestError) as caught:
            whole(family_rig, "weather?", tools=TOOLS, response_format=form)
        assert caught.value.param is not None and caught.value.param.startswith("response_format")
        return
    call = whole(family_rig, "weather?", tools=TOOLS, response_format=form, parallel_tool_calls=False).message
    assert call.tool_calls[0].function.arguments == ARGUMENTS
    for choice in ("auto", "none"):
        said = whole(family_rig, "as DATA?", tools=TOOLS, tool_choice=choice, response_format=form).message
        assert (said.tool_calls, json.loads(said.content)) == (None, {"ok": True})
