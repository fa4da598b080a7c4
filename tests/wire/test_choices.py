"""Several answers to one prompt, computed once; the best of them; the prompt echoed; ids shown; events joined."""

import json
from itertools import groupby
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from server_rig import Rig, make_rig, sse

CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"
PROMPT = "x" * 200  # of 16-token blocks


@pytest.fixture(scope="module")
def rig() -> Any:
    with make_rig() as rig:
        yield rig


def post(rig: Rig, path: str, **body: Any) -> dict[str, Any]:
    answer = rig.http.post(path, json=body)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def streamed(rig: Rig, path: str, **body: Any) -> list[dict[str, Any]]:
    answer = rig.http.post(path, json={**body, "stream": True})
    assert answer.status_code == 200, answer.text
    *chunks, done = sse(answer.text)
    assert done == "[DONE]"
    return [json.loads(chunk) for chunk in chunks]


def texts_of(chunks: list[dict[str, Any]], count: int) -> list[str]:
    """By choice, each with exactly one end."""
    texts, ends = [""] * count, [0] * count
    for chunk in chunks:
        for choice in chunk["choices"]:
            texts[choice["index"]] += choice["text"] if "text" in choice else choice["delta"].get("content", "")
            ends[choice["index"]] += choice["finish_reason"] is not None
    assert ends == [1] * count
    return texts


def test_choices_differ_by_their_random_numbers_alone(rig: Rig) -> None:
    body: dict[str, Any] = {"prompt": PROMPT, "seed": 5, "max_tokens": 20, "temperature": 1.0}
    four = post(rig, TEXT, **body, n=4)
    texts = [c["text"] for c in four["choices"]]
    assert [c["index"] for c in four["choices"]] == [0, 1, 2, 3] and len(set(texts)) == 4
    assert texts[0] == post(rig, TEXT, **body)["choices"][0]["text"]
    assert texts[:2] == [c["text"] for c in post(rig, TEXT, **body, n=2)["choices"]]
    assert texts_of(streamed(rig, TEXT, **body, n=4), 4) == texts
    greedy = post(rig, TEXT, **{**body, "temperature": 0}, n=3)
    assert len({c["text"] for c in greedy["choices"]}) == 1


def test_the_prompt_is_computed_and_counted_once() -> None:
    with make_rig() as rig:
        before = rig.wait_idle().computed_tokens
        answer = post(rig, TEXT, prompt=PROMPT, n=8, max_tokens=10, seed=1)
        load = rig.wait_idle()
        # The rest of the last block, if it is not full, is each one's own; the last token always.
        assert load.computed_tokens - before <= len(PROMPT) + 7 * 17 + 8 * 10
        assert answer["usage"]["prompt_tokens"] == len(PROMPT)
        assert answer["usage"]["completion_tokens"] == 80
        assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
        again = post(rig, TEXT, prompt=PROMPT, n=8, max_tokens=10, seed=1)
        assert again["choices"] == answer["choices"]
        assert 0 < again["usage"]["prompt_tokens_details"]["cached_tokens"] < len(PROMPT)


def test_without_the_prefix_cache_the_same() -> None:
    body: dict[str, Any] = {"prompt": PROMPT, "n": 4, "max_tokens": 10, "seed": 1}
    with make_rig() as rig, make_rig(engine={"prefix_cache": False}) as other:
        assert post(rig, TEXT, **body)["choices"] == post(other, TEXT, **body)["choices"]


@pytest.mark.parametrize("policy", ["static", "dynamic"])
def test_policies_of_whole_batches_too(policy: str) -> None:
    with make_rig(batching={"policy": policy, "max_batch": 4, "max_wait_ms": 50}) as rig:
        assert len(post(rig, TEXT, prompt=PROMPT, n=4, max_tokens=5)["choices"]) == 4
        rig.wait_idle()


def test_more_choices_than_seats_still_all_come() -> None:
    with make_rig(engine={"max_sequences": 2}) as rig:
        answer = post(rig, CHAT, messages=[{"role": "user", "content": "hi"}], n=7, max_tokens=5, seed=2)
        assert len(answer["choices"]) == 7
        rig.wait_idle()


def test_a_reader_that_leaves_ends_all_choices() -> None:
    with make_rig(pace=0.02) as rig:
        for path, body in ((TEXT, {"prompt": PROMPT}), (CHAT, {"messages": [{"role": "user", "content": PROMPT}]})):
            with rig.http.stream("POST", path, json={**body, "n": 6, "max_tokens": 200, "stream": True}) as response:
                next(response.iter_raw())
            assert rig.wait_idle().steps < 200


def test_choices_that_wait_for_the_prompt_can_be_cancelled_and_expire() -> None:
    with make_rig(pace=0.1, engine={"max_step_tokens": 16}) as rig:
        with pytest.raises(httpx.ReadTimeout):
            rig.http.post(TEXT, json={"prompt": PROMPT, "n": 4, "max_tokens": 3}, timeout=0.3)
        rig.wait_idle()
    with make_rig(pace=0.02, engine={"max_sequences": 1}) as rig:  # it takes long for four to have had the one seat
        late = rig.http.post(TEXT, json={"prompt": PROMPT, "n": 4, "max_tokens": 60, "timeout": 2})
        assert late.status_code == 504, late.text
        rig.wait_idle()


def test_best_of_returns_the_likeliest(rig: Rig) -> None:
    body: dict[str, Any] = {"prompt": "go", "seed": 9, "max_tokens": 12, "temperature": 1.5}
    all_of_them = post(rig, TEXT, **body, n=6, logprobs=0)
    means = {c["text"]: sum(p := c["logprobs"]["token_logprobs"]) / len(p) for c in all_of_them["choices"]}
    best = post(rig, TEXT, **body, n=2, best_of=6)
    assert [c["text"] for c in best["choices"]] == sorted(means, key=lambda text: -means[text])[:2]
    assert [c["index"] for c in best["choices"]] == [0, 1] and best["choices"][0]["logprobs"] is None
    assert best["usage"]["completion_tokens"] == all_of_them["usage"]["completion_tokens"]
    assert post(rig, TEXT, **body, n=2, best_of=6, logprobs=0)["choices"][0]["logprobs"] is not None


def test_lists_of_prompts_times_choices(rig: Rig) -> None:
    body: dict[str, Any] = {"seed": 3, "max_tokens": 6}
    whole = post(rig, TEXT, prompt=["one", "two"], n=3, **body)
    each = [c["text"] for p in ("one", "two") for c in post(rig, TEXT, prompt=p, n=3, **body)["choices"]]
    assert [c["text"] for c in whole["choices"]] == each
    assert texts_of(streamed(rig, TEXT, prompt=["one", "two"], n=3, **body), 6) == each


def test_echo(rig: Rig) -> None:
    ids = rig.http.post("/tokenize", json={"prompt": "say this"}).json()["tokens"]
    for prompt in ("say this", ids):
        plain = post(rig, TEXT, prompt=prompt, max_tokens=5, seed=1)["choices"][0]["text"]
        assert (
            post(rig, TEXT, prompt=prompt, max_tokens=5, seed=1, echo=True)["choices"][0]["text"] == "say this" + plain
        )
        chunks = streamed(rig, TEXT, prompt=prompt, max_tokens=5, seed=1, echo=True)
        assert texts_of(chunks, 1) == ["say this" + plain]


def test_token_ids(rig: Rig) -> None:
    prompt = rig.http.post("/tokenize", json={"prompt": "ids"}).json()["tokens"]
    body: dict[str, Any] = {"max_tokens": 8, "seed": 1, "return_token_ids": True}
    whole = post(rig, TEXT, prompt="ids", n=2, **body)
    chunks = streamed(rig, TEXT, prompt="ids", n=2, **body)
    for index, choice in enumerate(whole["choices"]):
        assert choice["prompt_token_ids"] == prompt
        assert rig.http.post("/detokenize", json={"tokens": choice["token_ids"]}).json()["prompt"] == choice["text"]
        mine = [c["choices"][0] for c in chunks if c["choices"] and c["choices"][0]["index"] == index]
        assert [i for c in mine for i in c.get("token_ids", [])] == choice["token_ids"]
        assert [c["prompt_token_ids"] for c in mine if "prompt_token_ids" in c] == [prompt]
    messages = [{"role": "user", "content": "ids"}]
    chat = post(rig, CHAT, messages=messages, n=2, **body)
    shown = streamed(rig, CHAT, messages=messages, n=2, **body)
    assert [c["prompt_token_ids"] for c in shown if "prompt_token_ids" in c] == [chat["prompt_token_ids"]]
    for index, choice in enumerate(chat["choices"]):
        mine = [c["choices"][0] for c in shown if c["choices"][0]["index"] == index]
        assert [i for c in mine for i in c.get("token_ids", [])] == choice["token_ids"]


@settings(max_examples=25)
@given(
    n=st.integers(1, 3),
    logprobs=st.none() | st.integers(0, 2),
    stop=st.none() | st.sampled_from(["a", "e", ["q", "zz"]]),
    seed=st.integers(0, 9),
    coalesce=st.sampled_from([None, 0, 3, 1000]),
)
def test_streamed_is_unstreamed(
    rig: Rig, n: int, logprobs: int | None, stop: Any, seed: int, coalesce: int | None
) -> None:
    body: dict[str, Any] = {"prompt": "go", "max_tokens": 25, "seed": seed, "n": n, "logprobs": logprobs, "stop": stop}
    whole = post(rig, TEXT, **body)
    options = {"include_usage": True, "coalesce_ms": coalesce}
    *chunks, usage = streamed(rig, TEXT, **body, stream_options=options)
    assert usage["usage"] == {**whole["usage"], "prompt_tokens_details": usage["usage"]["prompt_tokens_details"]}
    assert texts_of(chunks, n) == [c["text"] for c in whole["choices"]]
    for index, choice in enumerate(whole["choices"]):
        mine = [c["choices"][0] for c in chunks if c["choices"][0]["index"] == index]
        assert mine[-1]["finish_reason"] == choice["finish_reason"]
        for key, values in (choice["logprobs"] or {}).items():
            assert [v for c in mine if c["logprobs"] for v in c["logprobs"][key]] == values


def test_events_are_joined_only_where_asked() -> None:
    with make_rig(pace=0.005) as rig:
        body: dict[str, Any] = {"prompt": "go", "max_tokens": 40, "seed": 2, "n": 2}
        one_by_one = streamed(rig, TEXT, **body)
        joined = streamed(rig, TEXT, **body, stream_options={"coalesce_ms": 60})
        assert texts_of(joined, 2) == texts_of(one_by_one, 2)
        assert 4 <= len(joined) < len(one_by_one) / 3
        runs = [len(list(group)) for _, group in groupby(joined, key=lambda c: c["choices"][0]["index"])]
        assert max(runs) <= 2  # both choices go on together


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        (TEXT, {"prompt": "x", "n": 0}, "n"),
        (TEXT, {"prompt": "x", "n": 5_000_000}, "n"),
        (TEXT, {"prompt": ["x"] * 20, "n": 10}, "n"),
        (TEXT, {"prompt": "x", "n": 2, "best_of": 1}, "best_of"),
        (TEXT, {"prompt": "x", "best_of": 5_000_000}, "best_of"),
        (TEXT, {"prompt": "x", "best_of": 2, "stream": True}, "best_of"),
        (TEXT, {"prompt": "x", "echo": True, "logprobs": 1}, "echo"),
        (CHAT, {"messages": [{"role": "user", "content": "x"}], "n": 5_000_000}, "n"),
        (TEXT, {"prompt": "x", "stream": True, "stream_options": {"coalesce_ms": 5000}}, "stream_options.coalesce_ms"),
    ],
)
def test_refused_by_name(rig: Rig, path: str, body: dict[str, Any], param: str) -> None:
    answer = rig.http.post(path, json=body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param), answer.text
