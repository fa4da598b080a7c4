"""Models with layers that see a window only: blocks that fell out of it are used by others, and no token changes."""

from collections.abc import Iterator
from unittest import mock

import pytest
from oracle import FIXTURES

from headway import LLM, Params
from headway.core.config import load_settings
from headway.model.text import load_text
from headway.scheduling.blocks import KvBlocks
from headway.scheduling.sequence import Sequence

# All layers, by turns (gpt-oss with sinks), five of six; their window is 24.
MODELS = {"mistral_window": (24,), "gemma2": (0, 24, 24), "gpt_oss": (0, 24, 24), "gemma3": (0, 24, 24, 24, 24, 24)}
STEM = [3 + i * i % 150 for i in range(90)]
PROMPTS = [STEM[: 10 + 20 * (i % 4)] + [5 + i] * (i % 3) for i in range(24)]
PARAMS = [Params(max_tokens=100 + i, temperature=0.8, seed=i, ignore_eos=True, logprobs=1) for i in range(24)]


@pytest.fixture(params=MODELS)
def model(request: pytest.FixtureRequest) -> Iterator[str]:
    """A folder; text, which not all of them have a tokenizer for, is the first one's."""
    text = load_text(FIXTURES / "hf" / "mistral_window")
    with mock.patch("headway.offline.llm.load_text", lambda path: text):
        yield request.param


def serving(model: str, **engine: object) -> LLM:
    return LLM(str(FIXTURES / "hf" / model), settings=load_settings(None, {"engine": {"context": 256, **engine}}))


@pytest.mark.parametrize("prefix_cache", [True, False])
def test_blocks_out_of_the_window_are_used_again(model: str, prefix_cache: bool) -> None:
    alone = []
    with (
        mock.patch.object(KvBlocks, "_unseen", lambda *given: 0),  # all blocks are kept
        serving(model, max_sequences=1, prefix_cache=False) as llm,
    ):
        for prompt, asked in zip(PROMPTS, PARAMS, strict=True):
            alone += llm.generate([prompt], asked, show_progress=False)
    crowded = {"max_sequences": 12, "max_step_tokens": 48, "kv_memory_mb": 1, "prefix_cache": prefix_cache}
    with serving(model, **crowded) as llm:
        together = llm.generate(PROMPTS, PARAMS, show_progress=False)
        assert llm.load().free_blocks == llm.load().total_blocks
    assert [(c.token_ids, c.logprobs) for c in together] == [(c.token_ids, c.logprobs) for c in alone]


def test_a_long_sequence_holds_its_windows_only(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    windows, held, commit = MODELS[model], [], KvBlocks.commit

    def watch(blocks: KvBlocks, sequence: Sequence) -> None:
        commit(blocks, sequence)
        held.append((sequence.computed, blocks.held(sequence)))

    monkeypatch.setattr(KvBlocks, "commit", watch)
    with serving(model, max_sequences=1, max_step_tokens=16) as llm:
        assert llm.runner.info.windows == windows
        llm.generate([[5]], Params(max_tokens=240, ignore_eos=True), show_progress=False)
    assert len(held) == 240 // 16
    for computed, blocks in held:
        each = -(-computed // 16)
        assert blocks <= -(-sum(min(each, 3) if window else each for window in windows) // len(windows))
