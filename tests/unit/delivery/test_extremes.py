"""What the schemas let through, the engine and the native core can take: every number at both ends of its range."""

import json
import math
from array import array
from collections.abc import Iterator
from typing import Any

import pytest

from headway import _native
from headway.core.config import LimitSettings
from headway.core.request import EngineRequest
from headway.core.sampling import Sampling
from headway.delivery.caller import ANYBODY
from headway.delivery.openai_request import chat_requests, completion_requests
from headway.delivery.routes.generate import GenerateQuery
from headway.delivery.schemas import ChatRequest, CompletionRequest
from headway.scheduling.requirements import Requirements
from headway.serving.request import Request, Timing
from headway.serving.resolve import resolve_sampling

VOCAB = 50_000
CONTEXT = 2**40  # longer than any max_tokens, so that the context decides nothing here


def ends(field: dict[str, Any]) -> Iterator[float]:
    """The least and the greatest value that one field's JSON schema takes."""
    for kind in field.get("anyOf", [field]):
        if kind.get("type") not in ("integer", "number"):
            continue
        step = 1 if kind["type"] == "integer" else None
        for name, toward in (("minimum", 0), ("maximum", 0), ("exclusiveMinimum", 1), ("exclusiveMaximum", -1)):
            if name in kind:
                bound = kind[name]
                yield bound + toward * step if step else math.nextafter(bound, bound + toward) if toward else bound


def cases(schema: Any) -> list[tuple[str, float]]:
    fields = schema.model_json_schema()["properties"]
    counts = ("n", "best_of")  # of requests; limits.max_choices bounds them
    return [(name, value) for name, field in fields.items() if name not in counts for value in ends(field)]


def is_taken_by_the_engine(request: Request) -> None:
    prompt = array("I", [5, 6])
    sampling = resolve_sampling(request, prompt, CONTEXT, VOCAB)
    sent = EngineRequest(id=1, epoch=1, prompt=prompt.tobytes(), sampling=sampling, arrival=0.0)
    assert Requirements(CONTEXT, CONTEXT, VOCAB).problem(sent) is None
    native = _native.Sampling()
    for name in dir(native):
        if not name.startswith("_") and hasattr(Sampling, name) and name not in ("logprobs", "logit_bias"):
            setattr(native, name, getattr(sampling, name))  # raises TypeError if it does not fit
    native.logit_bias = list(sampling.logit_bias)


def test_the_ranges_are_found() -> None:
    assert {name for name, _ in cases(ChatRequest)} >= {"temperature", "top_k", "seed", "max_tokens", "min_tokens"}
    assert ("top_k", 2**31 - 1) in cases(ChatRequest) and ("top_k", -1) in cases(ChatRequest)


@pytest.mark.parametrize(("name", "value"), cases(ChatRequest))
def test_chat(name: str, value: float) -> None:
    more = {"max_tokens": {"min_tokens": 0}, "top_logprobs": {"logprobs": True}}.get(name, {})
    body = {"messages": [{"role": "user", "content": "x"}], name: value, **more}
    read = ChatRequest.model_validate_json(json.dumps(body))
    is_taken_by_the_engine(chat_requests(read, LimitSettings(), Timing(0.0), ANYBODY)[0])


@pytest.mark.parametrize(("name", "value"), cases(CompletionRequest))
def test_completion(name: str, value: float) -> None:
    body: dict[str, Any] = {"prompt": "x", "max_tokens": 2**31 - 1, name: value}
    read = CompletionRequest.model_validate_json(json.dumps(body))
    is_taken_by_the_engine(completion_requests(read, LimitSettings(), Timing(0.0), ANYBODY)[0])


@pytest.mark.parametrize(("name", "value"), cases(GenerateQuery))
def test_generate(name: str, value: float) -> None:
    """The same bounds as where the body says them."""
    assert (name, value) in cases(CompletionRequest) or (name, value) == ("top_k", 0)


def test_bias_at_both_ends() -> None:
    body = {"prompt": "x", "logit_bias": {"0": -100, str(VOCAB - 1): 100}}
    read = CompletionRequest.model_validate_json(json.dumps(body))
    is_taken_by_the_engine(completion_requests(read, LimitSettings(), Timing(0.0), ANYBODY)[0])
