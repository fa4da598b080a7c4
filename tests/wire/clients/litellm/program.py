"""litellm: completion() with its openai provider."""

import json
import os
from typing import Any

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # it would fetch prices

import litellm
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
    main,
    refusals,
)

litellm.suppress_debug_info = True
USER: list[Any] = [{"role": "user", "content": QUESTION}]


def ask(url: str = REAL, **options: Any) -> Any:
    given = {"model": f"openai/{MODEL}", "api_key": KEY, "temperature": 0, "max_tokens": MAX_TOKENS, "messages": USER}
    return litellm.completion(base_url=url, **{**given, **options})


def counts(usage: Any) -> list[int]:
    return [usage.prompt_tokens, usage.completion_tokens]


def chat() -> Any:
    answer = ask()
    return {"text": answer.choices[0].message.content, "usage": counts(answer.usage)}


def stream() -> Any:
    chunks = list(ask(stream=True, stream_options={"include_usage": True}))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    whole = litellm.stream_chunk_builder(chunks, messages=USER)
    assert whole.choices[0].message.content == text
    return {"text": text, "usage": counts(whole.usage)}


def tools() -> Any:
    messages: list[Any] = [{"role": "user", "content": WEATHER_QUESTION}]
    common: dict[str, Any] = {"tools": [TOOL], "max_tokens": 200, "parallel_tool_calls": False}
    message = ask(messages=messages, tool_choice="required", **common).choices[0].message
    chunks = list(ask(messages=messages, tool_choice="required", stream=True, **common))
    built = litellm.stream_chunk_builder(chunks, messages=messages).choices[0].message
    calls = [[call.function.name, call.function.arguments] for call in message.tool_calls]
    assert calls == [[call.function.name, call.function.arguments] for call in built.tool_calls]
    texts = set()
    for said in (message, message.model_dump(), built, built.model_dump()):
        called = (said if isinstance(said, dict) else said.model_dump())["tool_calls"][0]["id"]
        result = {"role": "tool", "tool_call_id": called, "name": calls[0][0], "content": WEATHER}
        answer = ask(messages=[*messages, said, result], tool_choice="none", **common)
        texts.add(answer.choices[0].message.content)
    [text] = texts
    return {"calls": calls, "answer": text}


def structured() -> Any:
    answer = ask(response_format=Person, max_tokens=100)
    return [json.loads(answer.choices[0].message.content)]


def errors() -> Any:
    def wrong(temperature: float = 0, key: str = KEY, model: str = MODEL) -> None:
        ask(FAKE, temperature=temperature, api_key=key, model=f"openai/{model}")

    return refusals(wrong)


def retry() -> Any:
    return ask(FAKE, max_retries=4).choices[0].message.content


def broken() -> Any:
    text = ""
    try:
        for chunk in ask(FAKE, stream=True, max_tokens=LONG, extra_headers={"x-request-timeout": BREAK_S}):
            text += chunk.choices[0].delta.content or ""
    except Exception as error:
        return {"text": text, "error": str(error)}
    return {"text": text, "error": None}


main(chat, stream, tools, structured, errors, retry, broken)
