"""Calls that must be made, by the default model: a small one, which the grammar holds to valid arguments."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from test_real_model import serving

WEATHER: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city.",
        "strict": True,
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "maxLength": 20},
                "unit": {"enum": ["celsius", "fahrenheit"]},
                "days": {"$ref": "#/$defs/days"},
            },
            "required": ["city", "unit", "days"],
            "additionalProperties": False,
            "$defs": {"days": {"type": "integer", "minimum": 1, "maximum": 14}},
        },
    },
}
TIME: dict[str, Any] = {"type": "function", "function": {"name": "get_time"}}
USER = [{"role": "user", "content": "What will the weather be like in Paris?"}]


@pytest.fixture(scope="module")
def client(default_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[openai.OpenAI]:
    folder = tmp_path_factory.mktemp("server")
    with (
        serving(default_model, folder, "[server]\nmodel_name = 'default'") as url,
        openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as made,
    ):
        yield made


def ask(client: openai.OpenAI, **options: Any) -> Any:
    given = {"messages": USER, "tools": [WEATHER, TIME], "temperature": 0, "max_tokens": 400, **options}
    return client.chat.completions.create(model="default", **given)


def check(name: str, arguments: str) -> None:
    """By hand what the schemas say."""
    given = json.loads(arguments)
    if name == "get_time":
        assert given == {}
        return
    assert name == "get_weather" and given.keys() == {"city", "unit", "days"}
    assert len(given["city"]) <= 20 and given["unit"] in ("celsius", "fahrenheit")
    assert type(given["days"]) is int and 1 <= given["days"] <= 14


def streamed(client: openai.OpenAI, **options: Any) -> tuple[list[list[str]], str]:
    calls, reason = [], ""
    for chunk in ask(client, stream=True, **options):
        assert not chunk.choices[0].delta.content
        reason = chunk.choices[0].finish_reason or reason
        for call in chunk.choices[0].delta.tool_calls or []:
            if call.id:
                calls.append([call.function.name, ""])
            calls[call.index][1] += call.function.arguments
    return calls, reason


@pytest.mark.parametrize(
    "options",
    [
        {"tool_choice": "required", "parallel_tool_calls": False},
        {"tool_choice": {"type": "function", "function": {"name": "get_weather"}}},
        {"tool_choice": {"type": "function", "function": {"name": "get_time"}}},
        {"tool_choice": "required", "temperature": 1, "seed": 5},
    ],
    ids=["required", "named", "without-parameters", "parallel"],
)
def test_calls_are_valid_whole_and_streamed(client: openai.OpenAI, options: dict[str, Any]) -> None:
    choice = ask(client, **options).choices[0]
    calls = [[call.function.name, call.function.arguments] for call in choice.message.tool_calls]
    assert streamed(client, **options) == (calls, choice.finish_reason)
    assert choice.message.content is None and 1 <= len(calls) <= 16
    if choice.finish_reason == "length":  # only where it may make many
        assert options == {"tool_choice": "required", "temperature": 1, "seed": 5}
        calls.pop()
    else:
        assert choice.finish_reason == "tool_calls"
    for name, arguments in calls:
        check(name, arguments)
    named = options["tool_choice"]
    if isinstance(named, dict):
        assert {name for name, _ in calls} == {named["function"]["name"]}


def test_many_at_once_are_all_valid(client: openai.OpenAI) -> None:
    async def one(asked: openai.AsyncOpenAI, seed: int) -> Any:
        given: dict[str, Any] = {"messages": USER, "tools": [WEATHER], "max_tokens": 200, "temperature": 1.5}
        answer = await asked.chat.completions.create(
            model="default", tool_choice="required", parallel_tool_calls=False, seed=seed, **given
        )
        return answer.choices[0]

    async def everything() -> list[Any]:
        async with openai.AsyncOpenAI(base_url=client.base_url, api_key="none", max_retries=0) as asked:
            return await asyncio.gather(*[one(asked, seed) for seed in range(24)])

    choices = asyncio.run(everything())
    assert {choice.finish_reason for choice in choices} == {"tool_calls"}
    for choice in choices:
        [call] = choice.message.tool_calls
        check(call.function.name, call.function.arguments)


def test_a_result_goes_back_and_an_answer_comes(client: openai.OpenAI) -> None:
    message = ask(client, tool_choice="required", parallel_tool_calls=False).choices[0].message
    result = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "Sunny, 21 degrees."}
    answer = ask(client, messages=[*USER, message.model_dump(), result], tool_choice="none", max_tokens=60).choices[0]
    assert answer.message.content and answer.message.tool_calls is None
    assert answer.finish_reason in ("stop", "length")


def test_strict_in_auto(client: openai.OpenAI) -> None:
    """It may talk; if it calls, then by the schema."""
    for seed in range(4):
        choice = ask(client, temperature=1, seed=seed, max_tokens=120).choices[0]
        calls = choice.message.tool_calls or []
        for call in calls[:-1] if choice.finish_reason == "length" else calls:
            check(call.function.name, call.function.arguments)


def test_tools_beside_a_response_format(client: openai.OpenAI) -> None:
    schema = {
        "type": "object",
        "properties": {"ok": {"type": "boolean"}},
        "required": ["ok"],
        "additionalProperties": False,
    }
    form = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
    choice = ask(client, response_format=form, parallel_tool_calls=False).choices[0]
    if choice.message.content is not None:
        assert json.loads(choice.message.content).keys() == {"ok"}
    else:
        check(choice.message.tool_calls[0].function.name, choice.message.tool_calls[0].function.arguments)


def test_a_schema_that_cannot_be_kept_is_refused(client: openai.OpenAI) -> None:
    bad = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "not": {"required": ["x"]}}}}
    with pytest.raises(openai.BadRequestError) as caught:
        ask(client, tools=[bad], tool_choice="required")
    assert caught.value.param == "tools"
