from math import inf, nan
from typing import Any

import pytest
from rig import make_request

from headway.scheduling.requirements import Requirements


@pytest.mark.parametrize(
    ("prompt", "problem"),
    [([1, 2], None), ([], "no tokens"), ([1] * 7, None), ([1] * 8, "KV cache"), ([1] * 20, "context"), ([50], "vocab")],
)
def test_problem(prompt: list[int], problem: str | None) -> None:
    said = Requirements(context=20, capacity=8, vocab_size=50).problem(make_request(1, prompt))
    assert said is None if problem is None else said is not None and problem in said


@pytest.mark.parametrize(
    "sampling",
    [
        {"top_k": 2**31},
        {"top_k": -1},
        {"min_tokens": 2**31},
        {"logprobs": 2**31},
        {"choice": -1},
        {"temperature": nan},
        {"temperature": -1.0},
        {"top_p": inf},
        {"min_p": nan},
        {"min_p": 2.0},
        {"top_p": -0.1},
        {"logit_bias": ((5, 1e39),)},
        {"presence_penalty": 1e30},
        {"repetition_penalty": 0.0},
        {"repetition_penalty": 1e-30},
        {"presence_penalty": -inf},
        {"frequency_penalty": nan},
        {"logit_bias": ((50, 1.0),)},
        {"logit_bias": ((-1, 1.0),)},
        {"logit_bias": ((2**40, 1.0),)},
        {"logit_bias": ((5, nan),)},
        {"stop_token_ids": (50,)},
        {"stop_token_ids": (-1,)},
    ],
    ids=str,
)
def test_sampling_that_no_runner_can_take(sampling: dict[str, Any]) -> None:
    """Nothing that comes from one request may make the runner fail for all."""
    requirements = Requirements(context=20, capacity=8, vocab_size=50)
    assert requirements.problem(make_request(1, [1, 2])) is None
    assert requirements.problem(make_request(1, [1, 2], **sampling)) is not None
