"""langchain-openai: ChatOpenAI."""

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
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import StructuredTool
from langchain_openai import ChatOpenAI


def llm(url: str = REAL, **options: Any) -> ChatOpenAI:
    given = {"model": MODEL, "api_key": KEY, "temperature": 0, "max_tokens": MAX_TOKENS, **options}
    return ChatOpenAI(base_url=url, **given)


def counts(message: Any) -> list[int]:
    return [message.usage_metadata["input_tokens"], message.usage_metadata["output_tokens"]]


def chat() -> Any:
    message = llm().invoke(QUESTION)
    return {"text": message.content, "usage": counts(message)}


def stream() -> Any:
    chunks = list(llm(stream_usage=True).stream(QUESTION))
    total = chunks[0]
    for chunk in chunks[1:]:
        total += chunk
    return {"text": "".join(str(chunk.content) for chunk in chunks), "usage": counts(total)}


def tools() -> Any:
    tool = StructuredTool.from_function(
        func=lambda city, days: WEATHER, name="get_weather", description="The weather.", args_schema=Weather
    )
    bound = llm(max_tokens=200).bind_tools([tool], tool_choice="required", parallel_tool_calls=False)
    messages: list[Any] = [HumanMessage(WEATHER_QUESTION)]
    message = bound.invoke(messages)
    total = None
    for chunk in bound.stream(messages):
        total = chunk if total is None else total + chunk
    assert total is not None and [c["args"] for c in total.tool_calls] == [c["args"] for c in message.tool_calls]
    results = [tool.invoke(call) for call in message.tool_calls]
    assert all(isinstance(result, ToolMessage) for result in results)
    free = llm().bind_tools([tool], tool_choice="none")
    answer = free.invoke([*messages, message, *results])
    return {"calls": [[c["name"], c["args"]] for c in message.tool_calls], "answer": answer.content}


def structured() -> Any:
    found = []
    for method in ("json_schema", "function_calling"):
        for strict in (None, True):
            form = llm(max_tokens=100).with_structured_output(Person, method=method, strict=strict)
            found.append(form.invoke("Invent a person.").model_dump())
    *_, last = llm(max_tokens=100).with_structured_output(Person, method="json_schema").stream("Invent a person.")
    return [*found, last.model_dump()]


def errors() -> Any:
    def ask(temperature: float = 0, key: str = KEY, model: str = MODEL) -> None:
        llm(FAKE, temperature=temperature, api_key=key, model=model).invoke(QUESTION)

    return refusals(ask)


def retry() -> Any:
    return llm(FAKE, max_retries=4).invoke(QUESTION).content


def broken() -> Any:
    text = ""
    try:
        for chunk in llm(FAKE, max_tokens=LONG, default_headers={"x-request-timeout": BREAK_S}).stream(QUESTION):
            text += str(chunk.content)
    except Exception as error:
        return {"text": text, "error": str(error)}
    return {"text": text, "error": None}


main(chat, stream, tools, structured, errors, retry, broken)
