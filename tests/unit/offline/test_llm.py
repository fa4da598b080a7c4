"""The Python API on the real model."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from headway import LLM, Params
from headway.core.config import load_settings
from headway.core.errors import ContextOverflow, InvalidRequest, ModelError

GREEDY = Params(max_tokens=16, temperature=0.0)


@pytest.fixture(scope="module")
def llm(default_model: Path) -> Iterator[LLM]:
    with LLM(str(default_model), settings=load_settings(None, {"engine": {"kv_memory_mb": 64, "context": 512}})) as llm:
        yield llm


def test_generate_continues_text_and_ids_alike(llm: LLM) -> None:
    text = "The capital of France is"
    ids = llm.tokenizer.encode(text, add_special=True)
    by_text, by_ids = llm.generate([text, list(ids)], GREEDY, show_progress=False)
    assert by_text.text == by_ids.text
    assert "Paris" in by_text.text
    assert by_text.prompt_tokens == len(ids)
    assert by_text.completion_tokens == 16
    assert by_text.finish_reason == "length"


def test_chat_takes_one_conversation_or_several(llm: LLM) -> None:
    conversation = [{"role": "user", "content": "What is 2 + 2?"}]
    one = llm.chat(conversation, GREEDY, show_progress=False)
    many = llm.chat([conversation, conversation], GREEDY, show_progress=False)
    assert [c.text for c in many] == [one[0].text] * 2


def test_streamed_text_is_the_text(llm: LLM) -> None:
    pieces = list(llm.stream("Name three fruits.", GREEDY))
    whole = llm.chat([{"role": "user", "content": "Name three fruits."}], GREEDY, show_progress=False)[0]
    assert len(pieces) > 3
    assert "".join(pieces) == whole.text


def test_closing_a_stream_frees_everything(llm: LLM) -> None:
    stream = llm.stream("Tell me a story.", Params(max_tokens=200, temperature=0.0))
    next(stream)
    stream.close()  # type: ignore[attr-defined]
    load = llm.load()
    assert load.running == load.waiting == 0
    assert load.free_blocks == load.total_blocks


def test_ctrl_c_leaves_a_usable_engine(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the middle of a step, where the wait for the runner is interrupted."""
    expected = llm.generate(["The sea"], GREEDY, show_progress=False)
    collect, calls = llm.runner.collect, 0

    def interrupted() -> object:
        nonlocal calls
        calls += 1
        if calls == 5:
            raise KeyboardInterrupt
        return collect()

    monkeypatch.setattr(llm.runner, "collect", interrupted)
    with pytest.raises(KeyboardInterrupt):
        llm.generate(["The sea", "The land"], GREEDY, show_progress=False)
    assert llm.load().running == llm.load().waiting == 0
    assert llm.generate(["The sea"], GREEDY, show_progress=False)[0].text == expected[0].text


def test_logprobs_of_every_token(llm: LLM) -> None:
    """One entry a token, also where the token is certain; nobody else gets any."""
    params = [replace(GREEDY, logprobs=0), GREEDY, replace(GREEDY, logprobs=3)]
    none, without, three = llm.generate(["1, 2, 3, 4, 5,"] * 3, params, show_progress=False)
    assert none.token_ids == without.token_ids == three.token_ids
    assert without.logprobs is None
    assert none.logprobs is not None and three.logprobs is not None
    assert len(none.logprobs) == len(three.logprobs) == len(none.token_ids)
    assert [p.logprob for p in none.logprobs] == [p.logprob for p in three.logprobs]
    assert all(not p.top for p in none.logprobs)
    for entry, token in zip(three.logprobs, three.token_ids, strict=True):
        assert entry.top[0] == (token, entry.logprob)  # greedy
        assert len(entry.top) == 3


def test_stop_strings_end_the_text_before_them(llm: LLM) -> None:
    free = llm.generate(["1, 2, 3, 4,"], GREEDY, show_progress=False)[0]
    stop = free.text[6:9]
    stopped = llm.generate(["1, 2, 3, 4,"], Params(max_tokens=16, temperature=0.0, stop=[stop]), show_progress=False)[0]
    assert stopped.text == free.text[: free.text.index(stop)]
    assert stopped.finish_reason == "stop"
    assert stopped.completion_tokens < free.completion_tokens


def test_more_prompts_than_the_queue_holds(default_model: Path) -> None:
    given = load_settings(None, {"engine": {"kv_memory_mb": 64, "max_sequences": 4}, "queue": {"max_requests": 4}})
    with LLM(str(default_model), settings=given) as llm:
        out = llm.generate(["a", "b", "c"] * 10, Params(max_tokens=2, temperature=0.0), show_progress=False)
    assert len(out) == 30
    assert [c.text for c in out[:3]] * 10 == [c.text for c in out]


def test_what_cannot_be_served_is_refused(llm: LLM) -> None:
    with pytest.raises(ContextOverflow, match="512"):
        llm.generate(["word " * 600], GREEDY, show_progress=False)
    with pytest.raises(InvalidRequest, match="vocabulary"):
        llm.generate([[10**6]], GREEDY, show_progress=False)
    with pytest.raises(ValueError, match="2 prompts but 1 params"):
        llm.generate(["a", "b"], [GREEDY], show_progress=False)
    assert llm.generate(["still here"], GREEDY, show_progress=False)[0].completion_tokens == 16


def test_settings_that_do_not_fit_the_model(default_model: Path) -> None:
    with pytest.raises(ModelError, match="context"):
        LLM(str(default_model), settings=load_settings(None, {"engine": {"context": 10**6}}))


def test_a_truncated_file_is_refused(default_model: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(default_model.read_bytes()[:50_000_000])
    with pytest.raises(ModelError, match=r"cut\.gguf"):
        LLM(str(cut))
