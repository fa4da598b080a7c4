"""The openai package, as its documentation has it."""

import asyncio
from typing import Any

import openai
from cases import (
    BREAK_S,
    FAKE,
    KEY,
    LONG,
    MAX_TOKENS,
    MODEL,
    QUESTION,
    REAL,
    TOOL,
    WEATHER,
    WEATHER_QUESTION,
    Person,
    Weather,
    main,
    refusals,
)
from openai.types.chat import ChatCompletionChunk

USER: list[Any] = [{"role": "user", "content": QUESTION}]
ASK: dict[str, Any] = {"model": MODEL, "messages": USER, "temperature": 0, "max_tokens": MAX_TOKENS}


def client(url: str = REAL, **options: Any) -> openai.OpenAI:
    return openai.OpenAI(base_url=url, api_key=KEY, **options)


def counts(usage: Any) -> list[int]:
    return [usage.prompt_tokens, usage.completion_tokens]


def chat() -> Any:
    answer = client().chat.completions.create(**ASK)
    return {"text": answer.choices[0].message.content, "usage": counts(answer.usage)}


def stream() -> Any:
    text, usage = "", None
    for chunk in client().chat.completions.create(**ASK, stream=True, stream_options={"include_usage": True}):
        text += chunk.choices[0].delta.content or "" if chunk.choices else ""
        usage = chunk.usage or usage
    return {"text": text, "usage": counts(usage)}


def helper() -> Any:
    """The package's own accumulating stream, asynchronous."""

    async def ask() -> Any:
        async with (
            openai.AsyncOpenAI(base_url=REAL, api_key=KEY) as asked,
            asked.chat.completions.stream(**ASK, stream_options={"include_usage": True}) as events,
        ):
            text = "".join([event.delta async for event in events if event.type == "content.delta"])
            answer = await events.get_final_completion()
            assert text == answer.choices[0].message.content
            return {"text": text, "usage": counts(answer.usage)}

    return asyncio.run(ask())


def tools() -> Any:
    messages: list[Any] = [{"role": "user", "content": WEATHER_QUESTION}]
    strict = openai.pydantic_function_tool(Weather, name="get_weather")
    common: dict[str, Any] = {"model": MODEL, "max_tokens": 200, "temperature": 0, "parallel_tool_calls": False}
    message = None
    for tool in (TOOL, strict):
        answer = client().chat.completions.create(messages=messages, tools=[tool], tool_choice="required", **common)
        message = answer.choices[0].message
    parsed = client().chat.completions.parse(messages=messages, tools=[strict], tool_choice="required", **common)
    assert message is not None and message.tool_calls and parsed.choices[0].message.tool_calls
    assert isinstance(parsed.choices[0].message.tool_calls[0].function.parsed_arguments, Weather)
    streamed = ""
    for chunk in client().chat.completions.create(
        messages=messages, tools=[strict], tool_choice="required", stream=True, **common
    ):
        for call in chunk.choices[0].delta.tool_calls or []:
            streamed += (call.function and call.function.arguments) or ""
    [call] = message.tool_calls
    assert streamed == call.function.arguments
    with client().chat.completions.stream(
        messages=messages, tools=[strict], tool_choice="required", **common
    ) as events:
        built = events.get_final_completion().choices[0].message
    texts = set()
    for said in (message, message.model_dump(), parsed.choices[0].message, built, built.model_dump()):
        called = (said if isinstance(said, dict) else said.model_dump())["tool_calls"][0]["id"]
        more = [said, {"role": "tool", "tool_call_id": called, "content": WEATHER}]
        last = client().chat.completions.create(messages=messages + more, tools=[strict], tool_choice="none", **common)
        texts.add(last.choices[0].message.content)
    [answer] = texts
    return {"calls": [[call.function.name, call.function.arguments]], "answer": answer}


def structured() -> Any:
    given = {**ASK, "max_tokens": 100, "response_format": Person}
    whole = client().chat.completions.parse(**given).choices[0].message.parsed
    with client().chat.completions.stream(**given) as events:
        streamed = events.get_final_completion().choices[0].message.parsed
    assert whole and whole == streamed
    return [whole.model_dump()]


def errors() -> Any:
    def ask(temperature: float = 0, key: str = KEY, model: str = MODEL) -> None:
        asked = openai.OpenAI(base_url=FAKE, api_key=key)
        asked.chat.completions.create(**{**ASK, "temperature": temperature, "model": model})

    return refusals(ask)


def retry() -> Any:
    return client(FAKE, max_retries=4).chat.completions.create(**ASK).choices[0].message.content


def broken() -> Any:
    text = ""
    asked = {**ASK, "max_tokens": LONG, "stream": True}
    try:
        for chunk in client(FAKE).chat.completions.create(**asked, extra_headers={"x-request-timeout": BREAK_S}):
            text += chunk.choices[0].delta.content or ""
    except openai.APIError as error:
        return {"text": text, "error": str(error)}
    return {"text": text, "error": None}


def resume() -> Any:
    """The second half of a stream by its number; then all of it by the same request again."""
    asked = client(FAKE)
    options: Any = {"resumable": True}
    given = {**ASK, "stream": True, "stream_options": options}
    first: list[Any] = []
    with asked.chat.completions.create(**given) as events:
        for chunk in events:
            first.append(chunk)
            if len(first) == 10:
                break
    name = first[0].id
    path, kind = f"/streams/{name}?after={len(first)}", openai.Stream[ChatCompletionChunk]
    rest = list(asked.get(path, cast_to=ChatCompletionChunk, stream=True, stream_cls=kind))
    again = list(asked.chat.completions.create(**given, extra_headers={"last-event-id": f"{name}-{len(first)}"}))
    assert again == rest and {chunk.id for chunk in rest} == {name}
    return "".join(chunk.choices[0].delta.content or "" for chunk in first + rest)


def completion() -> Any:
    given: dict[str, Any] = {"model": MODEL, "prompt": "Once", "max_tokens": 20, "temperature": 0}
    answer = client().completions.create(**given)
    text = "".join(chunk.choices[0].text for chunk in client().completions.create(**given, stream=True))
    return {"text": answer.choices[0].text, "streamed": text}


def models() -> Any:
    return [model.id for model in client().models.list()]


main(chat, stream, helper, tools, structured, errors, retry, broken, resume, completion, models)
