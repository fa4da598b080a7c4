"""One request has one answer: whole, streamed in any way, resumed and offline, whatever it asks for."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from server_rig import Rig, make_rig, make_runner, sse
from test_real_model import serving as serve_model

from headway import LLM, Params
from headway.core.config import load_settings
from headway.model.grammar import Grammars

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
PROPERTY = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
RUNNER = {"end_probability": 0.02, "context": 4096, "blocks": 2048}
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 8}, "size": {"enum": ["small", "large"]}},
    "required": ["city", "size"],
    "additionalProperties": False,
}
TOOLS = [
    {"type": "function", "function": {"name": "place", "strict": True, "parameters": SCHEMA}},
    {"type": "function", "function": {"name": "get_time"}},
]


@dataclass
class Choice:
    """What one choice comes to, however it came."""

    text: str = ""
    reasoning: str = ""
    calls: list[list[str]] = field(default_factory=list)  # name, arguments
    finish: str | None = None
    logprobs: dict[str, list[Any]] = field(default_factory=dict)

    def add(self, text: str | None, logprobs: dict[str, Any] | None) -> None:
        self.text += text or ""
        for name, values in (logprobs or {}).items():
            if values is not None:
                self.logprobs.setdefault(name, []).extend(values)


@dataclass(frozen=True)
class Answer:
    choices: dict[int, Choice]
    usage: dict[str, int]


Reader = Callable[[httpx.Client, str, dict[str, Any]], Answer]


def post(http: httpx.Client, path: str, body: dict[str, Any]) -> httpx.Response:
    answer = http.post(path, json=body)
    assert answer.status_code == 200, answer.text
    return answer


def whole(http: httpx.Client, path: str, body: dict[str, Any]) -> Answer:
    said = post(http, path, body).json()
    choices = {}
    for part in said["choices"]:
        choice = choices[part["index"]] = Choice(finish=part["finish_reason"])
        message = part["message"] if "message" in part else {"content": part["text"]}
        choice.add(message["content"], part["logprobs"])
        choice.reasoning = message.get("reasoning_content") or ""
        called = [call["function"] for call in message.get("tool_calls") or []]
        choice.calls = [[function["name"], function["arguments"]] for function in called]
    return Answer(choices, counts(said["usage"]))


def counts(usage: dict[str, Any]) -> dict[str, int]:
    return {name: usage[name] for name in ("prompt_tokens", "completion_tokens")}


def built(text: str) -> Answer:
    """What the events of a stream come to; whether they are in order is checked on the way."""
    *events, done = sse(text)
    assert done == "[DONE]"
    chunks = [json.loads(event) for event in events]
    choices: dict[int, Choice] = {}
    for part in (part for chunk in chunks for part in chunk["choices"]):
        choice = choices.setdefault(part["index"], Choice())
        assert choice.finish is None, "nothing comes after the end"
        choice.finish = part["finish_reason"]
        delta = part["delta"] if "delta" in part else {"content": part["text"]}
        choice.add(delta.get("content"), part.get("logprobs"))
        choice.reasoning += delta.get("reasoning_content") or ""
        for call in delta.get("tool_calls") or []:
            if "id" in call:
                assert call["index"] == len(choice.calls)
                choice.calls.append([call["function"]["name"], ""])
            choice.calls[call["index"]][1] += call["function"].get("arguments", "")
    assert chunks[-1]["choices"] == []
    return Answer(choices, counts(chunks[-1]["usage"]))


def streaming(**options: Any) -> Reader:
    def read(http: httpx.Client, path: str, body: dict[str, Any]) -> Answer:
        asked = {**body, "stream": True, "stream_options": {"include_usage": True, **options}}
        return built(post(http, path, asked).text)

    return read


def resumed(http: httpx.Client, path: str, body: dict[str, Any]) -> Answer:
    """The second half by the stream's id, the first as it came."""
    asked = {**body, "stream": True, "stream_options": {"include_usage": True, "resumable": True}}
    came = [event for event in post(http, path, asked).text.split("\n\n") if event.startswith("id: ")]
    half = came[: len(came) // 2]
    stream, _, number = came[len(half) - 1].split("\n")[0].removeprefix("id: ").rpartition("-")
    rest = http.get(f"/v1/streams/{stream}?after={number}").text
    return built("\n\n".join([*half, rest]))


# Ways to an answer. WebSocket and the Responses API belong here, once they are there.
READERS: dict[str, Reader] = {
    "streamed": streaming(),
    "continuous": streaming(continuous_usage_stats=True),
    "coalesced": streaming(coalesce_ms=20),
    "resumed": resumed,
}


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    with make_rig(runner=RUNNER) as made:
        yield made
        made.wait_idle()


@pytest.fixture(scope="module")
def offline(rig: Rig) -> Iterator[LLM]:
    """The fake model without a server."""

    def grammars() -> Grammars:
        return Grammars(rig.text.tokenizer, rig.text.vocab_size, rig.text.end_ids)

    def load(*given: Any) -> Any:
        return make_runner(rig.text.vocab_size, grammars=grammars, **RUNNER)

    where = "headway.offline.llm"
    with (
        mock.patch(f"{where}.resolve", lambda *given: Path("fake")),
        mock.patch(f"{where}.load_text", lambda path: rig.text),
        mock.patch(f"{where}.load_runner", load),
    ):
        llm = LLM("fake", settings=load_settings(None, {}))
    with llm:
        yield llm


SAMPLING = st.one_of(
    st.just({"temperature": 0.0}),
    st.fixed_dictionaries(
        {"temperature": st.sampled_from([0.7, 1.5]), "seed": st.integers(0, 2**64 - 1)},
        optional={
            "top_p": st.just(0.9),
            "top_k": st.just(20),
            "min_p": st.just(0.05),
            "frequency_penalty": st.just(0.5),
        },
    ),
)
STOP = st.lists(st.text('abcdeABCDE{}" ', min_size=1, max_size=2), max_size=3)
FORM = st.sampled_from([None, {"json": SCHEMA}, {"regex": "[a-f]{3,20}"}, {"choice": ["yes", "yes, but", "no"]}])
ASKED = st.fixed_dictionaries(
    {
        "max_tokens": st.integers(1, 80),
        "n": st.integers(1, 3),
        "stop": STOP,
        "structured_outputs": FORM,
        "logprobs": st.sampled_from([None, 0, 2]),
        "sampling": SAMPLING,
    },
    optional={"ignore_eos": st.just(True), "min_tokens": st.just(1)},
)
CALLING = st.sampled_from(
    [
        {},
        {"tools": TOOLS},
        {"tools": TOOLS, "tool_choice": "required"},
        {"tools": TOOLS, "tool_choice": "required", "parallel_tool_calls": False},
        {"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "place"}}},
    ]
)


def body_of(path: str, prompt: str, asked: dict[str, Any]) -> dict[str, Any]:
    """The request, in the words of its endpoint."""
    body = {name: value for name, value in asked.items() if name not in ("logprobs", "sampling")} | asked["sampling"]
    body["stop"] = asked["stop"] or None
    if path == TEXT:
        return {**body, "prompt": prompt, "logprobs": asked["logprobs"]}
    if asked["logprobs"] is not None:
        body |= {"logprobs": True, "top_logprobs": asked["logprobs"]}
    return {**body, "messages": [{"role": "user", "content": prompt}]}


def params_of(asked: dict[str, Any]) -> Params:
    """The same for Python."""
    named = {name: value for name, value in asked.items() if name not in ("n", "sampling")}
    return Params(**named, **asked["sampling"])


def same_everywhere(http: httpx.Client, offline: LLM, path: str, prompt: str, asked: dict[str, Any]) -> Answer:
    body = body_of(path, prompt, asked)
    answer = whole(http, path, body)
    for name, read in READERS.items():
        assert read(http, path, body) == answer, name
    first = answer.choices[0]  # the others have random numbers of their own, which offline has no name for
    if path == TEXT:
        [done] = offline.generate([prompt], params_of(asked), show_progress=False)
    else:
        [done] = offline.chat([{"role": "user", "content": prompt}], params_of(asked), show_progress=False)
    assert (done.text, done.finish_reason) == (first.text, first.finish)
    assert done.prompt_tokens == answer.usage["prompt_tokens"]
    assert len(answer.choices) > 1 or done.completion_tokens == answer.usage["completion_tokens"]
    if asked["logprobs"] is not None:
        probs = first.logprobs.get("token_logprobs", [])
        if path == CHAT:
            probs = [entry["logprob"] for entry in first.logprobs.get("content", [])]
        assert probs == [entry.logprob for entry in done.logprobs or []]
    return answer


@pytest.mark.parametrize("path", [CHAT, TEXT])
@PROPERTY
@given(asked=ASKED, prompt=st.text("abc xyz", min_size=1, max_size=40))
def test_of_a_fake_model(rig: Rig, offline: LLM, path: str, asked: dict[str, Any], prompt: str) -> None:
    answer = same_everywhere(rig.http, offline, path, prompt, asked)
    assert answer.choices.keys() == set(range(asked["n"]))
    assert all(choice.finish in ("stop", "length") for choice in answer.choices.values())


@settings(PROPERTY, max_examples=25)
@given(asked=ASKED, calling=CALLING, seed=st.integers(0, 2**32))
def test_with_tools(rig: Rig, asked: dict[str, Any], calling: dict[str, Any], seed: int) -> None:
    """Which there are not offline."""
    form = asked["structured_outputs"] if calling.get("tool_choice") is None else None
    asked = {**asked, "structured_outputs": form, "max_tokens": 200}
    body = {**body_of(CHAT, "hi", asked), **calling, "seed": seed}
    answer = whole(rig.http, CHAT, body)
    for name, read in READERS.items():
        assert read(rig.http, CHAT, body) == answer, name
    for choice in answer.choices.values():
        assert choice.calls or choice.finish != "tool_calls"
        for name, arguments in choice.calls[: None if choice.finish == "tool_calls" else -1]:
            assert json.loads(arguments).keys() == ({"city", "size"} if name == "place" else set())


@contextmanager
def real(default_model: Path, folder: Path) -> Iterator[tuple[httpx.Client, LLM]]:
    settings = load_settings(None, {"engine": {"kv_memory_mb": 64}})
    with (
        serve_model(default_model, folder, "") as url,
        httpx.Client(base_url=url, timeout=60) as http,
        LLM(str(default_model), settings=settings) as llm,
    ):
        yield http, llm


@pytest.mark.long
def test_of_the_default_model(default_model: Path, tmp_path: Path) -> None:
    plain: dict[str, Any] = {"max_tokens": 40, "n": 1, "stop": [], "structured_outputs": None, "logprobs": None}
    greedy: dict[str, Any] = {"sampling": {"temperature": 0.0}}
    warm: dict[str, Any] = {"sampling": {"temperature": 1.0, "seed": 7, "top_p": 0.9}}
    cases = [
        {**plain, **greedy},
        {**plain, **warm, "n": 3, "logprobs": 2},
        {**plain, **warm, "stop": [" the", "."], "max_tokens": 80},
        {**plain, **greedy, "structured_outputs": {"json": SCHEMA}, "max_tokens": 80},
        {**plain, **warm, "structured_outputs": {"regex": "[A-Z][a-z]{2,8}( [a-z]{2,8}){3}"}, "logprobs": 0, "n": 2},
    ]
    with real(default_model, tmp_path) as (http, offline):
        for asked in cases:
            for path in (CHAT, TEXT):
                same_everywhere(http, offline, path, "Tell me about 🙂 and rivers.", asked)
        for calling in ({"tools": TOOLS}, {"tools": TOOLS, "tool_choice": "required", "parallel_tool_calls": False}):
            body = {**body_of(CHAT, "Where is Rome?", {**plain, **warm, "max_tokens": 120}), **calling}
            answer = whole(http, CHAT, body)
            for name, read in READERS.items():
                assert read(http, CHAT, body) == answer, name
