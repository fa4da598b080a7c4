"""`headway serve` on the default model, the openai client unmodified: 32 requests at once, each as if alone."""

import asyncio
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import openai
import pytest

from headway import LLM, Params
from headway.core.config import load_settings

QUESTIONS = [
    "Why is the sky blue?",
    "Name three fruits.",
    "Write a haiku about rivers.",
    "What is 12 + 30?",
    "Translate 'good morning' into French.",
    "Explain batching. " * 20,
    "Tell me about 🙂 and 日本語.",
    "Give me a short story about a dog that learned to read.",
]


@dataclass(frozen=True)
class Ask:
    """One request and how it is sent."""

    text: str
    chat: bool
    stream: bool
    flex: bool
    params: Params


ASKS = [
    Ask(
        QUESTIONS[i % 8],
        chat=i % 2 == 0,
        stream=i % 4 < 2,
        flex=i < 16 and i % 3 == 0,
        params=Params(
            max_tokens=36 + i % 13,
            temperature=(0.0, 0.9)[i // 8 % 2],
            top_p=(1.0, 0.9)[i // 16],
            seed=500 + i,
            stop=[" the"] if i % 5 == 4 else [],
            frequency_penalty=0.5 if i % 7 == 6 else 0.0,
        ),
    )
    for i in range(32)
]


@pytest.fixture(scope="module")
def alone(default_model: Path) -> list[tuple[str, str, int]]:
    """Text, finish reason and completion tokens of each request by itself, offline: no sockets, no neighbours."""
    settings = load_settings(None, {"engine": {"threads": 1, "prefix_cache": False, "kv_memory_mb": 64}})
    out = []
    with LLM(str(default_model), settings=settings) as llm:
        for ask in ASKS:
            if ask.chat:
                done = llm.chat([{"role": "user", "content": ask.text}], ask.params, show_progress=False)[0]
            else:
                done = llm.generate([ask.text], ask.params, show_progress=False)[0]
            out.append((done.text, done.finish_reason, done.completion_tokens))
    return out


@contextmanager
def serving(model: Path, folder: Path, config: str) -> Iterator[str]:
    """A server started as a user starts it; its URL."""
    file = folder / "headway.toml"
    file.write_text(config)
    command = [sys.executable, "-m", "headway", "serve", str(model), "--port", "0", "--config", str(file)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout is not None
        found = re.search(r"http://\S+", process.stdout.readline())
        assert found is not None
        yield found[0]
        process.terminate()
        assert process.wait(timeout=30) == 0
    finally:
        process.kill()
        process.communicate()


async def send(client: openai.AsyncOpenAI, ask: Ask) -> tuple[str, str, int]:
    p = ask.params
    common = {
        "model": "default", "max_tokens": p.max_tokens, "temperature": p.temperature, "top_p": p.top_p, "seed": p.seed,
        "stop": list(p.stop) or None, "frequency_penalty": p.frequency_penalty,
        "extra_body": {"service_tier": "flex" if ask.flex else "auto"},
    }  # fmt: skip
    if ask.stream:
        common |= {"stream": True, "stream_options": {"include_usage": True}}
    if ask.chat:
        answer = await client.chat.completions.create(messages=[{"role": "user", "content": ask.text}], **common)  # type: ignore[call-overload]
    else:
        answer = await client.completions.create(prompt=ask.text, **common)  # type: ignore[call-overload]
    if not ask.stream:
        choice = answer.choices[0]
        return choice.message.content if ask.chat else choice.text, choice.finish_reason, answer.usage.completion_tokens
    text, reasons, used = "", [], 0
    async for chunk in answer:
        for choice in chunk.choices:
            text += (choice.delta.content if ask.chat else choice.text) or ""
            reasons.append(choice.finish_reason)
        used = chunk.usage.completion_tokens if chunk.usage else used
    assert [r for r in reasons if r] == reasons[-1:]
    return text, reasons[-1], used


async def ask_all(url: str) -> list[tuple[str, str, int]]:
    """All at once, beside a flex stream that is under way: where the pool is small, it must leave for them."""
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        first = await client.completions.create(
            model="default", prompt="Once", max_tokens=200, stream=True,
            extra_body={"service_tier": "flex", "ignore_eos": True},
        )  # fmt: skip
        await anext(first)
        answers = await asyncio.gather(*(send(client, ask) for ask in ASKS))
        await first.close()
        return answers


@pytest.mark.parametrize(
    "config",
    [
        "",
        "[engine]\nmax_step_tokens = 16\nprefix_cache = false\nthreads = 1",
        "[engine]\nmax_step_tokens = 64\nthreads = 2",
        "[engine]\nmax_step_tokens = 512\nprefix_cache = false\nthreads = 2",
        # Without a promise prompts join at once, so that the pool runs out however fast the machine is.
        "[engine]\nkv_memory_mb = 4\ncontext = 256\n[promise]\nitl_ms = 0",
    ],
    ids=["default", "chunks-16-uncached-1-thread", "chunks-64", "chunks-512-uncached", "tiny-pool"],
)
def test_every_answer_is_the_one_it_gets_alone(
    config: str, alone: list[tuple[str, str, int]], default_model: Path, tmp_path: Path
) -> None:
    tiny = "kv_memory_mb" in config
    with serving(default_model, tmp_path, config + "\n[server]\nmodel_name = 'default'") as url:
        assert asyncio.run(ask_all(url)) == alone
        metrics = httpx.get(f"{url}/metrics").text
        assert asyncio.run(ask_all(url)) == alone  # now with whatever the prefix cache holds
    preemptions = float(re.search(r"^headway_preemptions_total (\S+)", metrics, re.MULTILINE)[1])  # type: ignore[index]
    assert (preemptions > 0) == tiny
