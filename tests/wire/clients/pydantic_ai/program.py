"""pydantic-ai: agents with OpenAIChatModel."""

import asyncio
from typing import Any

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
    Weather,
    main,
    refusals,
)
from openai import AsyncOpenAI
from pydantic_ai import Agent, NativeOutput, ToolOutput
from pydantic_ai.direct import model_request_sync
from pydantic_ai.messages import ModelRequest, ToolCallPart, ToolReturnPart
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.tools import ToolDefinition


def model(url: str = REAL, key: str = KEY, name: str = MODEL, **options: Any) -> OpenAIChatModel:
    asked = AsyncOpenAI(base_url=url, api_key=key, **options)
    return OpenAIChatModel(name, provider=OpenAIProvider(openai_client=asked))


def agent(kind: Any = str, settings: Any = None, **options: Any) -> Any:
    given = {"temperature": 0.0, "max_tokens": MAX_TOKENS, **(settings or {})}
    return Agent(model(**options), output_type=kind, model_settings=given)


def counts(usage: Any) -> list[int]:
    return [usage.input_tokens, usage.output_tokens]


def usage_of(result: Any) -> list[int]:
    return counts(result.usage() if callable(result.usage) else result.usage)


def chat() -> Any:
    result = agent().run_sync(QUESTION)
    return {"text": result.output, "usage": usage_of(result)}


def stream() -> Any:
    async def ask() -> Any:
        async with agent().run_stream(QUESTION) as result:
            pieces = [piece async for piece in result.stream_text(delta=True, debounce_by=None)]
            return {"text": "".join(pieces), "usage": usage_of(result)}

    return asyncio.run(ask())


def tools() -> Any:
    """One call that must be made, and its result sent back."""
    tool = ToolDefinition(
        name="get_weather", parameters_json_schema=Weather.model_json_schema(), description="The weather in a city."
    )
    settings: Any = {"temperature": 0.0, "max_tokens": 200, "parallel_tool_calls": False}
    question = ModelRequest.user_text_prompt(WEATHER_QUESTION)
    must = ModelRequestParameters(function_tools=[tool], allow_text_output=False)
    response = model_request_sync(model(), [question], model_settings=settings, model_request_parameters=must)
    [call] = [part for part in response.parts if isinstance(part, ToolCallPart)]
    result = ModelRequest([ToolReturnPart(call.tool_name, WEATHER, call.tool_call_id)])
    answer = model_request_sync(model(), [question, response, result], model_settings=settings)
    return {"calls": [[call.tool_name, call.args_as_dict()]], "answer": answer.text}


def structured() -> Any:
    found = []
    for kind in (ToolOutput(Person), NativeOutput(Person), NativeOutput(Person, strict=True)):
        found.append(agent(kind, {"max_tokens": 200}).run_sync("Invent a person.").output.model_dump())
    return found


def errors() -> Any:
    def ask(temperature: float = 0, key: str = KEY, model: str = MODEL) -> None:
        agent(settings={"temperature": temperature}, url=FAKE, key=key, name=model).run_sync(QUESTION)

    return refusals(ask)


def retry() -> Any:
    return agent(url=FAKE, max_retries=4).run_sync(QUESTION).output


def broken() -> Any:
    text = ""

    async def ask() -> None:
        nonlocal text
        settings = {"max_tokens": LONG, "extra_headers": {"x-request-timeout": BREAK_S}}
        async with agent(settings=settings, url=FAKE).run_stream(QUESTION) as result:
            async for piece in result.stream_text(delta=True, debounce_by=None):
                text += piece

    try:
        asyncio.run(ask())
    except Exception as error:
        return {"text": text, "error": str(error)}
    return {"text": text, "error": None}


main(chat, stream, tools, structured, errors, retry, broken)
