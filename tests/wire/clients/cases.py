"""What the client programs share: what is asked, and how they report. They run in environments without Headway."""

import json
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any, Literal

import pydantic

REAL = os.environ["HEADWAY_REAL"]  # a base_url: the default model
FAKE = os.environ["HEADWAY_FAKE"]  # one of a slow model that says nonsense
KEY = "sesame"
MODEL = "default"
QUESTION = "Name three fruits."
MAX_TOKENS = 40
WEATHER_QUESTION = "What will the weather be like in Paris?"
WEATHER = "Sunny, 21 degrees."
BREAK_S = "0.6"  # a deadline that ends an answer of the slow model in its middle
LONG = 400  # tokens, more than it makes in that time


class Weather(pydantic.BaseModel):
    """The weather in a city."""

    model_config = pydantic.ConfigDict(
        extra="forbid"
    )  # else any more arguments are as valid, and a small model likes them

    city: Literal["Paris", "Rome"]
    days: int = pydantic.Field(ge=1, le=14)


class Person(pydantic.BaseModel):
    """Somebody."""

    name: str = pydantic.Field(max_length=12)
    age: int = pydantic.Field(ge=0, le=120)
    colour: Literal["red", "green", "blue"]


TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city.",
        "parameters": Weather.model_json_schema(),
    },
}


def status_of(error: BaseException) -> int:
    """The HTTP status that a client's exception tells, in itself or in one that it came from."""
    seen: BaseException | None = error
    while seen is not None:
        code = getattr(seen, "status_code", None)
        if isinstance(code, int):
            return code
        seen = seen.__cause__ or seen.__context__
    raise error


def refusals(ask: Callable[..., Any]) -> list[int]:
    """The statuses of a value, a key and a model that are wrong; `ask` takes temperature, key and model."""
    statuses = []
    for wrong in ({"temperature": 3.0}, {"key": "wrong"}, {"model": "no-such"}):
        try:
            ask(**wrong)
        except Exception as error:
            statuses.append(status_of(error))
    return statuses


def main(*cases: Callable[[], Any]) -> None:
    """Runs those named on the command line and prints what each returns, or how it failed."""
    results = {}
    for case in cases:
        if case.__name__ in sys.argv[1:]:
            try:
                results[case.__name__] = {"value": case()}
            except Exception:
                results[case.__name__] = {"failed": traceback.format_exc()}
    print(json.dumps(results))
