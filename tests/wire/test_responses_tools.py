"""Tools, reasoning and structured output of the Responses API, on a model that says what it is told to."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from server_rig import Rig, make_rig

TOOLS: list[Any] = [
    {
        "type": "function",
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    }
]
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'
THINKING = (
    "{% for m in messages %}<{{ m.role }}>{% if m.reasoning_content %}({{ m.reasoning_content }}){% endif %}"
    "{{ m.content }}\n{% endfor %}<assistant>{% if false %}<think></think>{% endif %}"
)


def answers(prompt: str) -> str:
    asked = prompt.rpartition("<user>")[2]
    if "<tool_response>" in asked:
        return "It is sunny."
    if "twice" in asked:
        return f"Let me look.\n{CALL}\n{CALL}"
    if "think" in asked:
        return "<think>\nSo it is.\n</think>\n\nYes."
    return CALL if "<tools>" in prompt else '{"city": "Rome"}'


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    server = {"store_path": tmp_path_factory.mktemp("store") / "responses.db"}
    with make_rig(answers=answers, server=server, runner={"context": 4096, "blocks": 1024}) as rig:
        yield rig
        rig.wait_idle()


def ask(rig: Rig, input: Any, **options: Any) -> Any:
    """Whole, streamed and as it is stored: all the same but for ids."""
    options = {"model": "tiny", "temperature": 0, **options}
    whole = rig.openai.responses.create(input=input, **options)
    with rig.openai.responses.stream(input=input, **options) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_response()
    assert shown(final) == shown(whole) == shown(rig.openai.responses.retrieve(whole.id))
    return whole, kinds


def shown(value: Any) -> Any:
    """Without ids, and without what the client adds."""
    if hasattr(value, "output"):
        return shown(json.loads(value.to_json())["output"])
    if isinstance(value, list):
        return [shown(part) for part in value]
    hidden = ("id", "call_id", "parsed", "parsed_arguments")
    return {k: shown(v) for k, v in value.items() if k not in hidden} if isinstance(value, dict) else value


@pytest.mark.parametrize("choice", ["auto", "required", {"type": "function", "name": "get_weather"}])
def test_a_call_and_its_result(told: Rig, choice: Any) -> None:
    made, kinds = ask(told, "Weather?", tools=TOOLS, tool_choice=choice)
    [call] = made.output
    assert (call.type, call.name, call.status) == ("function_call", "get_weather", "completed")
    assert json.loads(call.arguments) == {"city": "Paris"} and made.status == "completed"
    assert "response.function_call_arguments.delta" in kinds and "response.function_call_arguments.done" in kinds
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}
    followed, _ = ask(told, [result], previous_response_id=made.id, tools=TOOLS)
    assert followed.output_text == "It is sunny."
    by_hand, _ = ask(told, [{"role": "user", "content": "Weather?"}, call.to_dict(), result], tools=TOOLS)
    assert by_hand.output_text == "It is sunny." and by_hand.usage.input_tokens == followed.usage.input_tokens


def test_text_and_several_calls(told: Rig) -> None:
    made, _ = ask(told, "Look twice.", tools=TOOLS)
    assert [item.type for item in made.output] == ["message", "function_call", "function_call"]
    assert made.output_text.strip() == "Let me look."
    single, _ = ask(told, "Look twice.", tools=TOOLS, parallel_tool_calls=False)
    assert [item.type for item in single.output] == ["message", "function_call"]


def test_structured_output(told: Rig) -> None:
    class Place(BaseModel):
        city: str

    parsed = told.openai.responses.parse(input="Where?", model="tiny", text_format=Place, temperature=0)
    assert parsed.output_parsed == Place(city="Rome")
    made, _ = ask(told, "Where?", text={"format": {"type": "json_object"}})
    assert json.loads(made.output_text) == {"city": "Rome"} and made.text.format.type == "json_object"


def test_reasoning_is_an_item_and_comes_back(tmp_path: Path) -> None:
    with make_rig(
        answers=answers,
        template=THINKING,
        server={"store_path": tmp_path / "r.db"},
        runner={"context": 4096, "blocks": 1024},
    ) as rig:
        made, kinds = ask(rig, "Do you think?")
        reasoning, message = made.output
        assert (reasoning.type, reasoning.content[0].text.strip()) == ("reasoning", "So it is.")
        assert message.content[0].text == "Yes." and made.usage.output_tokens_details.reasoning_tokens > 0
        assert "response.reasoning_text.delta" in kinds
        count = rig.openai.responses.input_tokens.count
        prompt = f"<user>Do you think?\n<assistant>({reasoning.content[0].text})Yes.\n<user>x\n<assistant>"
        assert count(model="tiny", previous_response_id=made.id, input="x").input_tokens == len(prompt)
        rig.wait_idle()


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"tools": [{"type": "function", "name": "a b"}]}, "tools.0.name"),
        ({"tools": [*TOOLS, *TOOLS]}, "tools.1.name"),
        ({"tools": [{**TOOLS[0], "parameters": {"type": "string"}}]}, "tools.0.parameters"),
        ({"tools": TOOLS, "tool_choice": {"type": "function", "name": "other"}}, "tool_choice"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": TOOLS, "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": 5}}, "tool_choice.tools"),
        ({"text": {"format": {"type": "json_schema", "name": "a", "schema": {"type": "x"}}}}, "text.format.schema"),
        ({"input": [{"type": "function_call_output", "call_id": "c", "output": "x"}]}, "input"),
        (
            {"input": [{"type": "function_call", "call_id": "c", "name": "f", "arguments": "["}]},
            "input.0.arguments",
        ),
    ],
)
def test_what_is_wrong_is_named(told: Rig, body: dict[str, Any], param: str) -> None:
    answer = told.http.post("/v1/responses", json={"input": "x", **body})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param), answer.text
