"""A model whose layers all see a window only: blocks that fell out of it are used by others, and no token changes."""

from pathlib import Path

import pytest

from headway import LLM, Params
from headway.core.config import load_settings


@pytest.mark.parametrize("prefix_cache", [True, False])
def test_blocks_out_of_the_window_are_used_again(parity_fixtures: Path, prefix_cache: bool) -> None:
    model = str(parity_fixtures / "hf" / "mistral_window")  # a window of 24
    stem = [3 + i * i % 300 for i in range(90)]
    prompts = [stem[: 10 + 20 * (i % 4)] + [5 + i] * (i % 3) for i in range(12)]
    params = [Params(max_tokens=100 + i, temperature=0.8, seed=i, ignore_eos=True) for i in range(12)]
    alone = []
    with LLM(model, settings=load_settings(None, {"engine": {"max_sequences": 1, "prefix_cache": False}})) as llm:
        for prompt, asked in zip(prompts, params, strict=True):
            alone += llm.generate([prompt], asked, show_progress=False)
    crowded = {"max_sequences": 6, "context": 256, "max_step_tokens": 48, "prefix_cache": prefix_cache}
    with LLM(model, settings=load_settings(None, {"engine": crowded})) as llm:
        together = llm.generate(prompts, params, show_progress=False)
        assert llm.load().free_blocks == llm.load().total_blocks
    assert [c.token_ids for c in together] == [c.token_ids for c in alone]
