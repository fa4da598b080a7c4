"""openai-agents with OpenAIChatCompletionsModel."""

import asyncio
import json
from typing import Annotated, Any, Literal

import pydantic
from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    Runner,
    ToolCallItem,
    function_tool,
    set_tracing_disabled,
)
from cases import (
    BREAK_S,
    FAKE,
    KEY,
    LONG,
    MAX_TOKENS,
    MODEL,
    QUESTION,
    REAL,
    WEATHER,
    WEATHER_QUESTION,
    Person,
    main,
    refusals,
)
from openai import AsyncOpenAI

set_tracing_disabled(True)


def agent(url: str = REAL, key: str = KEY, name: str = MODEL, retries: int = 2, **options: Any) -> Any:
    settings = {"temperature": 0, "max_tokens": MAX_TOKENS, "include_usage": True, **options.pop("settings", {})}
    asked = AsyncOpenAI(base_url=url, api_key=key, max_retries=retries)
    model = OpenAIChatCompletionsModel(model=name, openai_client=asked)
    return Agent(name="helper", model=model, model_settings=ModelSettings(**settings), **options)


def counts(result: Any) -> list[int]:
    usage = result.context_wrapper.usage
    return [usage.input_tokens, usage.output_tokens]


def chat() -> Any:
    result = Runner.run_sync(agent(), QUESTION)
    return {"text": result.final_output, "usage": counts(result)}


async def streamed(who: Any) -> tuple[str, Any]:
    text, result = "", Runner.run_streamed(who, QUESTION)
    async for event in result.stream_events():
        if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
            text += event.data.delta
    return text, result


def stream() -> Any:
    text, result = asyncio.run(streamed(agent()))
    return {"text": text, "usage": counts(result)}


def tools() -> Any:
    @function_tool
    def get_weather(city: Literal["Paris", "Rome"], days: Annotated[int, pydantic.Field(ge=1, le=14)]) -> str:
        """The weather in a city.

        Args:
            city: Its name.
            days: From 1 to 14.
        """
        return WEATHER

    settings = {"tool_choice": "required", "parallel_tool_calls": False, "max_tokens": 200}
    # After the call its own rule is to let the model choose; a small one would rather go on calling.
    caller = agent(tools=[get_weather], settings=settings, tool_use_behavior="stop_on_first_tool")
    result = Runner.run_sync(caller, WEATHER_QUESTION)
    calls = [item.raw_item for item in result.new_items if isinstance(item, ToolCallItem)]
    assert result.final_output == WEATHER
    answer = Runner.run_sync(agent(), result.to_input_list())
    return {"calls": [[call.name, json.loads(call.arguments)] for call in calls], "answer": answer.final_output}


def structured() -> Any:
    result = Runner.run_sync(agent(output_type=Person, settings={"max_tokens": 100}), "Invent a person.")
    return [result.final_output.model_dump()]


def errors() -> Any:
    def ask(temperature: float = 0, key: str = KEY, model: str = MODEL) -> None:
        Runner.run_sync(agent(FAKE, key, model, settings={"temperature": temperature}), QUESTION)

    return refusals(ask)


def retry() -> Any:
    return Runner.run_sync(agent(FAKE, retries=4), QUESTION).final_output


def broken() -> Any:
    text = ""

    async def ask() -> None:
        nonlocal text
        settings = {"max_tokens": LONG, "extra_headers": {"x-request-timeout": BREAK_S}}
        result = Runner.run_streamed(agent(FAKE, settings=settings), QUESTION)
        async for event in result.stream_events():
            if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
                text += event.data.delta

    try:
        asyncio.run(ask())
    except Exception as error:
        return {"text": text, "error": str(error)}
    return {"text": text, "error": None}


main(chat, stream, tools, structured, errors, retry, broken)
