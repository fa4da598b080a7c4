"""instructor, around the openai package, in each of the modes that an OpenAI-compatible server has."""

from typing import Any

import instructor
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
    WEATHER_QUESTION,
    Person,
    Weather,
    main,
    refusals,
)

USER: list[Any] = [{"role": "user", "content": QUESTION}]


def client(mode: Any = instructor.Mode.TOOLS, url: str = REAL, key: str = KEY, **options: Any) -> Any:
    return instructor.from_openai(openai.OpenAI(base_url=url, api_key=key, **options), mode=mode)


def ask(asked: Any, kind: Any = Person, **options: Any) -> Any:
    given = {"model": MODEL, "messages": USER, "temperature": 0, "max_tokens": 200, "max_retries": 0, **options}
    return asked.create(response_model=kind, **given)


def counts(usage: Any) -> list[int]:
    return [usage.prompt_tokens, usage.completion_tokens]


def chat() -> Any:
    answer = ask(client(), None, max_tokens=MAX_TOKENS)
    return {"text": answer.choices[0].message.content, "usage": counts(answer.usage)}


def tools() -> Any:
    weather = ask(client(), Weather, messages=[{"role": "user", "content": WEATHER_QUESTION}])
    return {"calls": [["get_weather", weather.model_dump()]], "answer": None}


def structured() -> Any:
    mode = instructor.Mode
    modes = (mode.TOOLS, mode.TOOLS_STRICT, mode.JSON_SCHEMA)
    found = [ask(client(one)).model_dump() for one in modes]
    for one in modes:
        given: dict[str, Any] = {"model": MODEL, "messages": USER, "temperature": 0, "max_tokens": 200}
        *_, last = client(one).create_partial(response_model=Person, **given)
        found.append(last.model_dump())
    _, raw = client().create_with_completion(
        response_model=Person, model=MODEL, messages=USER, temperature=0, max_tokens=200
    )
    assert raw.usage.completion_tokens > 0
    return found


def errors() -> Any:
    def wrong(temperature: float = 0, key: str = KEY, model: str = MODEL) -> None:
        ask(client(url=FAKE, key=key), temperature=temperature, model=model)

    return refusals(wrong)


def retry() -> Any:
    answer = ask(client(url=FAKE, max_retries=4), None, max_tokens=MAX_TOKENS)
    return answer.choices[0].message.content


def broken() -> Any:
    text = ""
    asked = client(url=FAKE, default_headers={"x-request-timeout": BREAK_S})
    try:
        for chunk in ask(asked, None, stream=True, max_tokens=LONG):
            text += chunk.choices[0].delta.content or ""
    except Exception as error:
        return {"text": text, "error": str(error)}
    return {"text": text, "error": None}


main(chat, tools, structured, errors, retry, broken)
