"""Structured output over the wire: what every field asks for is what comes, whole and streamed, beside others."""

import json
import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pydantic
import pytest
from server_rig import Rig, make_rig

USER: Any = [{"role": "user", "content": "hi"}]
CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 6}, "size": {"enum": ["small", "large"]}},
    "required": ["city", "size"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def rig() -> Any:
    with make_rig(runner={"end_probability": 0.1}) as made:
        yield made


def content(rig: Rig, path: str = CHAT, **fields: Any) -> str:
    body = {"model": "tiny", "seed": 3, "max_tokens": 400, **fields}
    if path == CHAT:
        body["messages"] = USER
    else:
        body["prompt"] = "hi"
    answer = rig.http.post(path, json=body)
    assert answer.status_code == 200, answer.text
    choice = answer.json()["choices"][0]
    assert choice["finish_reason"] == "stop"
    return choice["message"]["content"] if path == CHAT else choice["text"]


def test_json_schema(rig: Rig) -> None:
    for strict in (True, False, None):
        form = {"type": "json_schema", "json_schema": {"name": "place", "schema": SCHEMA, "strict": strict}}
        value = json.loads(content(rig, response_format=form))
        assert list(value) == ["city", "size"] and value["size"] in ("small", "large") and len(value["city"]) <= 6


@pytest.mark.parametrize("path", [CHAT, TEXT])
def test_structured_outputs(rig: Rig, path: str) -> None:
    def ask(**form: Any) -> str:
        return content(rig, path, structured_outputs=form)

    assert json.loads(ask(json=SCHEMA)).keys() == {"city", "size"}
    assert json.loads(ask(json=json.dumps(SCHEMA))).keys() == {"city", "size"}
    assert re.fullmatch(r"[0-9]{3}-[a-c]{2}", ask(regex=r"\d{3}-[a-c]{2}"))
    assert ask(choice=["yes", "no"]) in ("yes", "no")
    assert re.fullmatch(r"<[xy]>(true|false)", ask(grammar='start: "<" /[xy]/ ">" %json {"type": "boolean"}'))


def test_json_object(rig: Rig) -> None:
    """The oracle would go on for ever: it ends where nothing but the end is left to choose."""
    answer = rig.openai.chat.completions.create(
        model="tiny", messages=USER, max_tokens=60, seed=1, response_format={"type": "json_object"}
    )
    assert (answer.choices[0].message.content or "").startswith("{")


def test_the_clients_own_parser(rig: Rig) -> None:
    class Place(pydantic.BaseModel):
        city: str = pydantic.Field(max_length=5)
        tags: list[int] = pydantic.Field(max_length=2)

    answer = rig.openai.chat.completions.parse(
        model="tiny", messages=USER, response_format=Place, max_tokens=400, seed=2
    )
    assert isinstance(answer.choices[0].message.parsed, Place)


def test_streamed_is_whole_and_jumps_are_one_event(rig: Rig) -> None:
    form: Any = {"type": "json_schema", "json_schema": {"name": "place", "schema": SCHEMA}}
    whole = content(rig, response_format=form)
    for logprobs in (False, True):
        stream = rig.openai.chat.completions.create(
            model="tiny", messages=USER, response_format=form, seed=3, max_tokens=400, stream=True, logprobs=logprobs
        )
        pieces = [chunk.choices[0].delta.content or "" for chunk in stream]
        assert "".join(pieces) == whole
        assert (max(map(len, pieces)) > 1) == (not logprobs)


def test_neighbours_get_what_they_get_alone(rig: Rig) -> None:
    forms: list[Any] = [None, {"regex": "[a-f]{40}"}, {"json": SCHEMA}, {"choice": ["a" * 50, "a" * 49 + "b"]}]

    def ask(serial: int) -> str:
        body = {"prompt": f"{serial}", "max_tokens": 200, "seed": serial, "structured_outputs": forms[serial % 4]}
        return rig.http.post(TEXT, json=body).json()["choices"][0]["text"]

    alone = [ask(serial) for serial in range(24)]
    with ThreadPoolExecutor(24) as pool:
        assert list(pool.map(ask, range(24))) == alone
