"""Decision 2 with grammars, on the real model: the same tokens alone, among others, chunked and preempted."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headway import LLM, Completion, Params
from headway.core.config import Settings, load_settings
from headway.core.errors import InvalidRequest, RequestFailed

PERSON = {
    "type": "object",
    "properties": {
        "full_name": {"type": "string", "maxLength": 20},
        "year_of_birth": {"type": "integer", "minimum": 1900, "maximum": 2100},
        "favourite_colours": {"type": "array", "items": {"enum": ["red", "green", "dark blue"]}, "maxItems": 3},
    },
    "required": ["full_name", "year_of_birth", "favourite_colours"],
    "additionalProperties": False,
}
FORMS: list[dict[str, Any] | None] = [
    {"json": PERSON},
    None,
    {"regex": r"[A-Z][a-z]{2,12} \d{4}"},
    {"choice": ["a positive review", "a negative review", "no review"]},
    {"json_object": True},
    {"grammar": 'start: "<call>" %json {"type": "object", "properties": {"q": {"type": "string"}}} "</call>"'},
    None,
    {"json": {"type": "array", "items": {"type": "number"}, "minItems": 3, "maxItems": 3}},
]
PROMPTS = [f"Tell me about person number {i}. " * (1 + i % 3 * 4) for i in range(32)]
PARAMS = [
    Params(
        max_tokens=50,
        temperature=(0.0, 0.8, 1.2)[i % 3],
        seed=i,
        repetition_penalty=1.2 if i % 5 == 4 else 1.0,
        logprobs=1 if i % 7 == 3 else None,
        min_tokens=3 if i % 4 == 0 else 0,
        ignore_eos=i % 8 in (1, 6),
        structured_outputs=FORMS[i % 8],
    )
    for i in range(32)
]


def settings(**engine: object) -> Settings:
    return load_settings(None, {"engine": {"kv_memory_mb": 128, "context": 512, **engine}})


@pytest.fixture(scope="module")
def alone(default_model: Path) -> Iterator[list[Completion]]:
    with LLM(str(default_model), settings=settings(threads=1, prefix_cache=False, max_step_tokens=512)) as llm:
        yield [llm.generate([p], q, show_progress=False)[0] for p, q in zip(PROMPTS, PARAMS, strict=True)]


def same(found: list[Completion], expected: list[Completion]) -> None:
    for a, b in zip(found, expected, strict=True):
        assert (a.token_ids, a.text, a.finish_reason) == (b.token_ids, b.text, b.finish_reason)
        assert a.logprobs == b.logprobs


@pytest.mark.parametrize("max_step_tokens", [32, 512])
def test_batches_and_chunks(default_model: Path, alone: list[Completion], max_step_tokens: int) -> None:
    with LLM(str(default_model), settings=settings(threads=2, max_step_tokens=max_step_tokens)) as llm:
        same(llm.generate(PROMPTS, PARAMS, show_progress=False), alone)
        same(llm.generate(PROMPTS, PARAMS, show_progress=False), alone)  # from the prefix cache


def test_preemption(default_model: Path) -> None:
    """With an end that nobody can foresee, so that too many are let in and some must leave."""
    endless = {"json": {"type": "array", "items": PERSON, "minItems": 50}}
    params = [replace(p, max_tokens=110, structured_outputs=endless if i % 2 else None, ignore_eos=False,
                      stop_token_ids=[49000]) for i, p in enumerate(PARAMS[:10])]  # fmt: skip
    outcomes = []
    for megabytes in (128, 7):
        with LLM(str(default_model), settings=settings(kv_memory_mb=megabytes)) as llm:
            llm.generate([[5]] * 256, Params(max_tokens=1, ignore_eos=True), show_progress=False)
            outcomes.append(llm.generate(PROMPTS[:10], params, show_progress=False))
            assert (llm.load().preemptions > 0) == (megabytes == 7)
    same(*outcomes)


def test_what_comes_is_what_was_asked(default_model: Path) -> None:
    with LLM(str(default_model), settings=settings()) as llm:
        params = [Params(max_tokens=200, temperature=t, seed=s, structured_outputs={"json": PERSON})
                  for t in (0.0, 1.0) for s in range(4)]  # fmt: skip
        for found in llm.generate(PROMPTS[:8], params, show_progress=False):
            value = json.loads(found.text)
            assert found.finish_reason == "stop" and list(value) == list(PERSON["properties"])  # type: ignore[call-overload]


@pytest.mark.parametrize("form", [f for f in FORMS if f])
def test_with_logprobs_nothing_is_jumped_and_all_is_equal(default_model: Path, form: dict[str, Any]) -> None:
    with LLM(str(default_model), settings=settings()) as llm:
        params = Params(max_tokens=60, temperature=0.0, structured_outputs=form)
        jumped = llm.generate(PROMPTS[:4], params, show_progress=False)
        drawn = llm.generate(PROMPTS[:4], replace(params, logprobs=0), show_progress=False)
        assert [(c.text, c.token_ids) for c in jumped] == [(c.text, c.token_ids) for c in drawn]
        assert all(len(c.logprobs or ()) == len(c.token_ids) for c in drawn)


HOSTILE: list[dict[str, Any]] = [
    {"json": {"$ref": "#"}},
    {"json": {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}},
    {"json": {"enum": [f"{i * 7919 % 10007}" for i in range(6000)]}},
    {"json": {"allOf": [{"anyOf": [{"required": [f"{i}{j}"]} for j in range(4)]} for i in range(9)]}},
    {"json": {"type": "object", "properties": {f"{i * 7919}": {"type": "integer"} for i in range(1900)}}},
    {"json": {"type": "array", "items": {}, "minItems": 10**9}},
    {"regex": "((a{99}){99}){99}"},
    {"regex": "(x+x+)+y" * 50},
    {"regex": "(.*a.{1000})"},
    {"regex": "(?:a?){3000}a{3000}"},
    {"grammar": 'start: a\na: a a | /x/ | ""'},
    {"grammar": "start: r0\n" + "\n".join(f'r{i}: r{i + 1} | "x{i}" r{i + 1}' for i in range(1500)) + '\nr1500: "y"'},
    {"choice": ["a" * i for i in range(1, 350)]},
]


@pytest.mark.timeout(600)  # some are compiled for seconds, on purpose
def test_hostile_forms_are_refused_or_kept_and_spoil_nothing(default_model: Path) -> None:
    with LLM(str(default_model), settings=settings()) as llm:
        plain = Params(max_tokens=40, temperature=0.0)
        expected = llm.generate(PROMPTS[:4], plain, show_progress=False)
        for form in HOSTILE:
            stream = llm.stream("Go on.", replace(plain, structured_outputs=form))
            try:
                next(stream)
            except (InvalidRequest, RequestFailed) as error:
                assert error.message and "\n" not in error.message
                continue
            neighbours = llm.generate(PROMPTS[:4], plain, show_progress=False)  # beside it
            assert [c.token_ids for c in neighbours] == [c.token_ids for c in expected]
            stream.close()  # type: ignore[attr-defined]
        same(llm.generate(PROMPTS[:4], plain, show_progress=False), expected)
        assert llm.load().running == 0
