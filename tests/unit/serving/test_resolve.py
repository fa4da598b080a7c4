from array import array
from typing import Any

import pytest
from server_rig import make_text

from headway.core.errors import ContextOverflow, HeadwayError, InvalidRequest
from headway.core.sampling import Sampling
from headway.serving.prompts import PromptEncoder
from headway.serving.request import ChatPrompt, Request, TextPrompt, TokenPrompt
from headway.serving.resolve import resolve_sampling


def request(max_tokens: int | None = None, seed: int | None = None, **sampling: Any) -> Request:
    return Request(
        prompt=TextPrompt("x"),
        sampling=Sampling(max_tokens=0, **sampling),
        arrival=0.0,
        max_tokens=max_tokens,
        seed=seed,
    )


def test_fills_in_what_is_left_open() -> None:
    prompt = array("I", [1, 2, 3])
    resolved = resolve_sampling(request(), prompt, 10, 50)
    assert resolved.max_tokens == 7
    assert resolved.seed != resolve_sampling(request(), prompt, 10, 50).seed
    given = resolve_sampling(request(4, seed=9, min_tokens=2), prompt, 10, 50)
    assert (given.max_tokens, given.seed, given.min_tokens) == (4, 9, 2)


@pytest.mark.parametrize(
    ("made", "length", "error", "words"),
    [
        (request(), 0, InvalidRequest, "empty"),
        (request(), 10, ContextOverflow, "10 tokens"),
        (request(8), 3, ContextOverflow, "11"),
        (request(logit_bias=((50, 1.0),)), 3, InvalidRequest, "logit_bias"),
        (request(stop_token_ids=(-1,)), 3, InvalidRequest, "stop_token_ids"),
    ],
)
def test_refuses(made: Request, length: int, error: type[InvalidRequest], words: str) -> None:
    with pytest.raises(error, match=words):
        resolve_sampling(made, array("I", [1] * length), 10, 50)


def test_one_bad_prompt_spoils_no_other() -> None:
    encoder = PromptEncoder(make_text())
    bad = ChatPrompt([{"role": "user", "content": "x"}], variables={"no_such": 1})
    results = encoder.encode([TextPrompt("ab"), bad, TokenPrompt([99_999]), TokenPrompt([5]), TextPrompt("c", False)])
    assert [isinstance(result, HeadwayError) for result in results] == [False, True, True, False, False]
    assert results[3] == array("I", [5])
    assert [len(results[0]), len(results[4])] == [2, 1]  # type: ignore[arg-type]
