"""The openai client, unmodified."""

import asyncio
from typing import Any

import pytest
from openai import AsyncOpenAI
from server_rig import Rig, make_rig

MESSAGES: list[Any] = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Tell me a tale."}]


def chat_text(rig: Rig, **options: Any) -> str:
    answer = rig.openai.chat.completions.create(model="tiny", messages=MESSAGES, **options)
    return answer.choices[0].message.content or ""


def chat_stream(rig: Rig, **options: Any) -> str:
    stream = rig.openai.chat.completions.create(model="tiny", messages=MESSAGES, stream=True, **options)
    return "".join(chunk.choices[0].delta.content or "" for chunk in stream)


@pytest.mark.parametrize("sampling", [{"temperature": 0}, {"seed": 7}, {"seed": -1, "temperature": 1.5}])
def test_streamed_chat_is_the_unstreamed_text(rig: Rig, sampling: dict[str, Any]) -> None:
    whole = chat_text(rig, max_tokens=40, **sampling)
    assert whole
    assert chat_stream(rig, max_tokens=40, **sampling) == whole


def test_streamed_completion_is_the_unstreamed_text(rig: Rig) -> None:
    create = rig.openai.completions.create
    whole = create(model="tiny", prompt="Once", max_tokens=40, seed=3)
    assert whole.usage is not None and whole.usage.completion_tokens == 40
    chunks = create(model="tiny", prompt="Once", max_tokens=40, seed=3, stream=True)
    assert "".join(chunk.choices[0].text for chunk in chunks) == whole.choices[0].text


def test_without_a_seed_answers_differ(rig: Rig) -> None:
    assert chat_text(rig, max_tokens=20) != chat_text(rig, max_tokens=20)


def test_usage(rig: Rig) -> None:
    answer = rig.openai.chat.completions.create(model="tiny", messages=MESSAGES, max_completion_tokens=9)
    prompt = "<system>Be brief.\n<user>Tell me a tale.\n<assistant>"
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (len(prompt), 9)
    assert answer.usage.total_tokens == len(prompt) + 9
    assert answer.choices[0].finish_reason == "length"
    assert answer.system_fingerprint == "fake" and answer.model == "tiny"


def test_an_end_token_counts_but_is_no_text() -> None:
    with make_rig(runner={"end_probability": 0.1}) as rig:
        answer = rig.openai.completions.create(model="tiny", prompt="x", temperature=0, max_tokens=400, logprobs=0)
        choice, usage = answer.choices[0], answer.usage
        assert usage is not None and choice.logprobs is not None and choice.logprobs.tokens is not None
        assert choice.finish_reason == "stop"
        assert usage.completion_tokens == len(choice.logprobs.tokens) + 1 < 400
        ignoring = rig.openai.completions.create(
            model="tiny", prompt="x", temperature=0, max_tokens=60, extra_body={"ignore_eos": True}
        )
        assert ignoring.choices[0].finish_reason == "length"
        assert ignoring.usage is not None and ignoring.usage.completion_tokens == 60


def test_max_tokens_defaults_to_the_rest_of_the_context(rig: Rig) -> None:
    answer = rig.openai.chat.completions.create(model="tiny", messages=MESSAGES, temperature=0)
    assert answer.usage is not None and answer.usage.total_tokens == 512


def test_several_prompts_are_several_choices(rig: Rig) -> None:
    create = rig.openai.completions.create
    alone = [create(model="tiny", prompt=p, max_tokens=15, temperature=0).choices[0].text for p in ("one", "two")]
    answer = create(model="tiny", prompt=["one", "two"], max_tokens=15, temperature=0)
    assert [choice.text for choice in answer.choices] == alone
    assert answer.usage is not None and answer.usage.completion_tokens == 30
    texts = ["", ""]
    for chunk in create(model="tiny", prompt=["one", "two"], max_tokens=15, temperature=0, stream=True):
        texts[chunk.choices[0].index] += chunk.choices[0].text
    assert texts == alone


def test_token_id_prompts(rig: Rig) -> None:
    ids = rig.http.post("/tokenize", json={"prompt": "one"}).json()["tokens"]
    create = rig.openai.completions.create
    text = create(model="tiny", prompt="one", max_tokens=10, temperature=0).choices[0].text
    assert create(model="tiny", prompt=ids, max_tokens=10, temperature=0).choices[0].text == text
    two = create(model="tiny", prompt=[ids, ids], max_tokens=10, temperature=0)
    assert [choice.text for choice in two.choices] == [text, text]


def test_chat_logprobs(rig: Rig) -> None:
    options: dict[str, Any] = {"max_tokens": 30, "temperature": 0, "logprobs": True, "top_logprobs": 3}
    whole = rig.openai.chat.completions.create(model="tiny", messages=MESSAGES, **options).choices[0]
    assert whole.logprobs is not None and whole.logprobs.content is not None
    assert len(whole.logprobs.content) == 30
    assert all(len(entry.top_logprobs) == 3 for entry in whole.logprobs.content)
    data = b"".join(bytes(entry.bytes or []) for entry in whole.logprobs.content)
    assert data.decode("utf-8", "replace") == whole.message.content
    streamed: list[Any] = []
    for chunk in rig.openai.chat.completions.create(model="tiny", messages=MESSAGES, stream=True, **options):
        part = chunk.choices[0].logprobs
        streamed += part.content or [] if part else []
    assert streamed == whole.logprobs.content


def test_completion_logprobs(rig: Rig) -> None:
    answer = rig.openai.completions.create(model="tiny", prompt="x", max_tokens=12, temperature=0, logprobs=2)
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None and logprobs.tokens and logprobs.text_offset and logprobs.top_logprobs
    assert len(logprobs.tokens) == len(logprobs.token_logprobs or []) == len(logprobs.top_logprobs) == 12
    assert all(len(top) == 2 for top in logprobs.top_logprobs)
    for token, offset in zip(logprobs.tokens, logprobs.text_offset, strict=True):
        assert token.startswith("bytes:") or answer.choices[0].text[offset:].startswith(token)


def test_thirty_two_at_once_each_as_alone(rig: Rig) -> None:
    def options(i: int) -> dict[str, Any]:
        sampling = {"temperature": 0} if i % 2 else {"seed": i}
        content = "word " * (i * 2) + str(i)
        return {"model": "tiny", "messages": [{"role": "user", "content": content}], "max_tokens": 10 + i, **sampling}

    async def one(client: AsyncOpenAI, i: int) -> str:
        if i % 3:
            stream = await client.chat.completions.create(stream=True, **options(i))
            return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
        answer = await client.chat.completions.create(**options(i))
        return answer.choices[0].message.content or ""

    async def everything() -> tuple[list[str], list[str]]:
        async with AsyncOpenAI(base_url=f"{rig.url}/v1", api_key="none", max_retries=0) as client:
            together = await asyncio.gather(*[one(client, i) for i in range(32)])
            return list(together), [await one(client, i) for i in range(32)]

    together, alone = asyncio.run(everything())
    assert together == alone
    assert all(together)


def test_models(rig: Rig) -> None:
    assert [model.id for model in rig.openai.models.list()] == ["tiny"]
    assert rig.openai.models.retrieve("tiny").object == "model"
