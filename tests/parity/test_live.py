"""Fresh random models every run, against transformers itself; `make test-all` installs it."""

import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from oracle import FIXTURES, all_logits, open_runner
from test_forward import rms, sequences

pytestmark = pytest.mark.long
NAMES = sorted(path.name for path in (FIXTURES / "hf").iterdir() if "mxfp4" not in path.name)


@pytest.mark.parametrize("name", NAMES)
def test_family(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent / "make"))
    import hf_models
    import torch

    seed = int(time.time()) % 1_000_000
    print(f"seed {seed}")  # shown on failure; put it above to repeat
    tiny = replace(hf_models.MODELS[name], seed=seed, dtype=torch.float32)
    experts = tiny.config.get("num_experts", tiny.config.get("num_local_experts"))
    if experts:  # all of them: between two that are nearly as good, half-precision keys would turn the choice
        tiny = replace(tiny, config=tiny.config | {"num_experts_per_tok": experts})
    model = hf_models.random_model(tiny)
    answers = hf_models.expected(model, hf_models.random_prompts(seed, model.config.vocab_size))
    hf_models.save(model, tiny, tmp_path / name)
    runner = open_runner(tmp_path / name)
    for i, logits in enumerate(all_logits(runner, sequences(answers))):
        difference = np.abs(logits - answers["logits"][i, : len(logits)])
        assert difference.max() < 0.05
        assert rms(difference) < 0.005
    runner.close()
