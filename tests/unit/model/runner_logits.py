"""What a runner computes for one prompt."""

from array import array
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from headway.core.config import EngineSettings
from headway.core.runner import Batch, Opening, Work
from headway.core.sampling import Sampling
from headway.model.load import load_runner

SETTINGS = EngineSettings(threads=1, kv_memory_mb=4, max_sequences=4)
_PROMPT = array("I", [1, 2, 3, 30, 20, 10])


def logits_of(model: Path, settings: EngineSettings = SETTINGS) -> NDArray[np.float32]:
    """The logits that follow the prompt."""
    runner = load_runner(model, settings)
    opening = Opening(0, Sampling(max_tokens=1, temperature=0.0), _PROMPT, len(_PROMPT))
    runner.submit(Batch([Work(0, 0, _PROMPT, (array("I", [0]),), True)], [opening]))
    (sampled,) = runner.collect().sampled
    assert sampled is not None and sampled.error is None
    logits = runner.logits(0)
    runner.close()
    return logits
