"""The client library on a whole server."""

import re
from pathlib import Path

import pytest
from server_rig import Rig, make_rig

from headway.client import APIStatusError, AsyncClient, Client, DeadlineExceeded, Usage

MESSAGES = [{"role": "user", "content": "hi"}]
SAMPLING = {"max_tokens": 40, "seed": 7}


def test_streamed_is_whole_is_what_openai_gets(rig: Rig) -> None:
    theirs = rig.openai.chat.completions.create(model="tiny", messages=MESSAGES, **SAMPLING)  # type: ignore[call-overload]
    with Client(rig.url) as own:
        assert own.models() == ["tiny"]
        whole = own.chat("hi", **SAMPLING)
        with own.stream(MESSAGES, **SAMPLING) as answer:
            pieces = list(answer)
    assert "".join(pieces) == answer.text == whole.text == theirs.choices[0].message.content
    assert answer.finish_reason == whole.finish_reason == theirs.choices[0].finish_reason
    assert answer.usage == whole.usage
    assert isinstance(whole.usage, Usage) and whole.usage.completion_tokens == 40
    assert whole.raw["id"] != theirs.id and not answer.truncated


def test_the_examples_of_the_docs(rig: Rig, capsys: pytest.CaptureFixture[str]) -> None:
    text = (Path(__file__).parents[2] / "docs" / "client.md").read_text()
    examples = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(examples) == 3
    for example in examples:
        exec(example.replace("http://127.0.0.1:8000", rig.url), {})
        assert capsys.readouterr().out.strip()


def test_completions(rig: Rig) -> None:
    with Client(rig.url, model="tiny") as own:
        whole = own.complete("hi", **SAMPLING)
        assert "".join(own.stream_complete("hi", **SAMPLING)) == whole.text != ""


async def test_many_at_once(rig: Rig) -> None:
    async with AsyncClient(rig.url) as own:
        streams = [own.stream(f"hi {i}", **SAMPLING) for i in range(8)]
        texts = ["".join([piece async for piece in answer]) for answer in streams]
        assert texts == [(await own.chat(f"hi {i}", **SAMPLING)).text for i in range(8)]


def test_refusals(rig: Rig) -> None:
    with Client(rig.url) as own:
        with pytest.raises(APIStatusError) as refused:
            own.chat("hi", temperature=9)
        assert (refused.value.status, refused.value.param) == (400, "temperature") and refused.value.request_id
        with pytest.raises(APIStatusError) as refused:
            own.stream("hi" * 1000).__enter__()
        assert refused.value.code == "context_length_exceeded"


def test_the_deadline() -> None:
    """By whichever side's clock."""
    with make_rig(pace=0.05) as rig, Client(rig.url) as own:
        answer = own.stream("hi", max_tokens=400, timeout=0.5)
        with pytest.raises(DeadlineExceeded) as exceeded:
            list(answer)
        assert exceeded.value.partial == answer.text != ""
        with pytest.raises(DeadlineExceeded):
            own.chat("hi", max_tokens=400, timeout=0.2)
        rig.wait_idle()


def test_leaving_early_frees_the_server() -> None:
    with make_rig(pace=0.01) as rig, Client(rig.url) as own:
        with own.stream("hi", max_tokens=400) as answer:
            assert next(iter(answer))
        rig.wait_idle()


def test_a_limit_of_the_servers_own_is_no_drop() -> None:
    with make_rig(pace=0.02, promise={"token_s": 0.5}) as rig, Client(rig.url, on_drop="partial") as own:
        with own.stream("hi", max_tokens=400) as answer:
            pieces = iter(answer)
            next(pieces)
            rig.pace[0] = 1.0  # a step that outlasts the promise
            with pytest.raises(DeadlineExceeded, match="token_s") as failed:
                list(pieces)
        assert failed.value.partial == answer.text != "" and not answer.truncated
        rig.pace[0] = 0.0
        rig.wait_idle()
