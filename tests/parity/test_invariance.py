"""Decision 2 on the real model: a request's tokens are its own, whatever runs beside it and however it is run."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from headway import LLM, Completion, Params
from headway.core.config import Settings, load_settings

SHARED = "You are a helpful assistant that answers in one short sentence and never says more than is needed. "
PROMPTS = [
    "The capital of France is",
    SHARED + "Question: why is the sky blue? Answer:",
    SHARED + "Question: what is a transistor? Answer:",
    "def fibonacci(n):\n",
    "1, 2, 3, 5, 8,",
    "Once upon a time " * 40,
    "Ein Haus am See",
    SHARED + "Question: why is the sky blue? Answer:",
    "List three colours:",
    "🙂 means",
    "x",
    "It was the best of times, it was the worst of times, " * 12,
]
PARAMS = [
    Params(max_tokens=20, temperature=(0.0, 0.8, 1.2)[i % 3], seed=1000 + i, top_p=0.95 if i % 2 else 1.0,
           top_k=40 if i % 4 == 3 else 0, repetition_penalty=1.1 if i % 5 == 4 else 1.0, ignore_eos=True,
           logprobs=2 if i % 3 == 1 else None)
    for i in range(len(PROMPTS))
]  # fmt: skip


def settings(**engine: object) -> Settings:
    return load_settings(None, {"engine": {"kv_memory_mb": 128, "context": 1024, **engine}})


@pytest.fixture(scope="module")
def alone(default_model: Path) -> Iterator[list[Completion]]:
    """Each request by itself, one thread, nothing cached, the prompt in one piece."""
    with LLM(str(default_model), settings=settings(threads=1, prefix_cache=False, max_step_tokens=1024)) as llm:
        yield [llm.generate([p], q, show_progress=False)[0] for p, q in zip(PROMPTS, PARAMS, strict=True)]


def same(found: list[Completion], expected: list[Completion]) -> None:
    for a, b in zip(found, expected, strict=True):
        assert (a.token_ids, a.text, a.finish_reason) == (b.token_ids, b.text, b.finish_reason)
        assert a.logprobs == b.logprobs  # bit for bit


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("prefix_cache", [True, False])
@pytest.mark.parametrize("max_step_tokens", [16, 64, 512])
def test_batches_chunks_threads_and_cache(
    default_model: Path, alone: list[Completion], max_step_tokens: int, prefix_cache: bool, threads: int
) -> None:
    given = settings(threads=threads, prefix_cache=prefix_cache, max_step_tokens=max_step_tokens)
    with LLM(str(default_model), settings=given) as llm:
        first = llm.generate(PROMPTS, PARAMS, show_progress=False)
        same(first, alone)
        again = llm.generate(PROMPTS, PARAMS, show_progress=False)
        same(again, alone)
    assert any(c.cached_tokens for c in again) == prefix_cache


def test_preemption(default_model: Path) -> None:
    """A pool in which not all sequences fit once they have grown."""
    prompts = PROMPTS[:5] + PROMPTS[6:9]
    # With an end that nobody can foresee, though it never comes: what must grow to its limit would be let in only then.
    params = [replace(p, max_tokens=110, stop_token_ids=[49000]) for p in PARAMS[: len(prompts)]]
    outcomes = []
    for megabytes in (128, 7):
        with LLM(str(default_model), settings=settings(kv_memory_mb=megabytes)) as llm:
            # After many short answers it expects short ones, lets in too many, and some must leave.
            llm.generate([[5]] * 256, Params(max_tokens=1, ignore_eos=True), show_progress=False)
            outcomes.append(llm.generate(prompts, params, show_progress=False))
            assert (llm.load().preemptions > 0) == (megabytes == 7)
    same(*outcomes)


@pytest.mark.parametrize("policy", ["dynamic", "static"])
def test_batching_policies(default_model: Path, alone: list[Completion], policy: str) -> None:
    batching = {"policy": policy, "max_batch": 5, "window_ms": 5, "max_wait_ms": 20}
    given = load_settings(None, {"engine": {"kv_memory_mb": 128, "context": 1024}, "batching": batching})
    with LLM(str(default_model), settings=given) as llm:
        same(llm.generate(PROMPTS, PARAMS, show_progress=False), alone)
