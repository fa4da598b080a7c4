"""Decision 2: a request's tokens are its own, whatever runs beside it and however it is run. On the real model as it is
run by default, and on a tiny one with every instruction set, KV type and number of threads."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from oracle import FIXTURES, ISAS, asking_for

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


@dataclass(frozen=True)
class Case:
    """A model as it is run: its prompts are texts, or tokens where it is a tiny one."""

    model: Path
    prompts: list[str] | list[list[int]]
    kv_type: str
    context: int
    threads: tuple[int, ...]
    scarce: int  # sequences of SCARCE_TOKENS that do not all fit into `scarce_mb`
    scarce_mb: int

    def llm(self, **engine: object) -> LLM:
        return LLM(str(self.model), settings=self.settings(**engine))

    def settings(self, batching: dict[str, object] | None = None, **engine: object) -> Settings:
        given = {"kv_memory_mb": 128, "context": self.context, "kv_type": self.kv_type, **engine}
        return load_settings(None, {"engine": given, "batching": batching or {}})


SCARCE_TOKENS = 110


def tiny(kv_type: str) -> Case:
    folded = [[3 + byte for byte in prompt.encode()][:140] for prompt in PROMPTS]
    return Case(FIXTURES / "gguf" / "llama_llama3-q4_1.gguf", folded, kv_type, 256, (1, 2, 3, 4), 40, 1)


@pytest.fixture(scope="module", params=["default", *(f"{isa}-{kv}" for isa in ISAS for kv in ("int8", "f16"))])
def case(request: pytest.FixtureRequest, default_model: Path) -> Iterator[Case]:
    if request.param == "default":
        yield Case(default_model, PROMPTS, "int8", 1024, (1, 2), 8, 7)
        return
    isa, kv_type = request.param.split("-")
    with asking_for(isa):
        yield tiny(kv_type)


@pytest.fixture(scope="module")
def alone(case: Case) -> list[Completion]:
    """Each request by itself, one thread, nothing cached, the prompt in one piece."""
    with case.llm(threads=1, prefix_cache=False, max_step_tokens=1024) as llm:
        return [llm.generate([p], q, show_progress=False)[0] for p, q in zip(case.prompts, PARAMS, strict=True)]


def same(found: list[Completion], expected: list[Completion]) -> None:
    for a, b in zip(found, expected, strict=True):
        assert (a.token_ids, a.text, a.finish_reason) == (b.token_ids, b.text, b.finish_reason)
        assert a.logprobs == b.logprobs  # bit for bit


@pytest.mark.parametrize("prefix_cache", [True, False])
@pytest.mark.parametrize("max_step_tokens", [16, 64, 512])
def test_batches_chunks_threads_and_cache(
    case: Case, alone: list[Completion], max_step_tokens: int, prefix_cache: bool
) -> None:
    for threads in case.threads:
        with case.llm(threads=threads, prefix_cache=prefix_cache, max_step_tokens=max_step_tokens) as llm:
            first = llm.generate(case.prompts, PARAMS, show_progress=False)
            same(first, alone)
            again = llm.generate(case.prompts, PARAMS, show_progress=False)
            same(again, alone)
        assert any(c.cached_tokens for c in again) == prefix_cache


def test_preemption(case: Case) -> None:
    """A pool in which not all sequences fit once they have grown."""
    short = [i for i, prompt in enumerate(PROMPTS) if len(prompt) < 200]
    chosen = (short * case.scarce)[: case.scarce]
    # With an end that nobody can foresee, though it never comes: what must grow to its limit would be let in only then.
    end = 49000 if case.context == 1024 else 2
    params = [replace(PARAMS[i], max_tokens=SCARCE_TOKENS, stop_token_ids=[end]) for i in chosen]
    outcomes = []
    for megabytes in (128, case.scarce_mb):
        with case.llm(kv_memory_mb=megabytes) as llm:
            # After many short answers it expects short ones, lets in too many, and some must leave.
            llm.generate([[5]] * 256, Params(max_tokens=1, ignore_eos=True), show_progress=False)
            outcomes.append(llm.generate([case.prompts[i] for i in chosen], params, show_progress=False))
            assert (llm.load().preemptions > 0) == (megabytes == case.scarce_mb)
    same(*outcomes)


@pytest.mark.parametrize("policy", ["dynamic", "static"])
def test_batching_policies(case: Case, alone: list[Completion], policy: str) -> None:
    batching: dict[str, object] = {"policy": policy, "max_batch": 5, "window_ms": 5, "max_wait_ms": 20}
    with LLM(str(case.model), settings=case.settings(batching)) as llm:
        same(llm.generate(case.prompts, PARAMS, show_progress=False), alone)
