"""Models that load but compute no sense are refused."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from headway.core.config import EngineSettings
from headway.core.errors import ModelError
from headway.model.load import load_runner

SETTINGS = EngineSettings(threads=1, kv_memory_mb=16, max_sequences=2, max_step_tokens=16)


@pytest.mark.parametrize(
    ("tensor", "factor", "message"),
    [
        ("model.norm.weight", 0.0, "finds all tokens equally likely"),
        ("model.norm.weight", 1e5, "certain of every next token"),
        ("model.norm.weight", np.nan, "not finite at positions 0 to 7"),
        ("model.layers.1.mlp.down_proj.weight", np.inf, "not finite at positions 0 to 7"),
    ],
)
def test_no_sense_is_refused(copy_model: Callable[..., Path], tensor: str, factor: float, message: str) -> None:
    folder = copy_model("llama_llama3")
    load_runner(folder, SETTINGS).close()
    tensors = load_file(folder / "model.safetensors")
    save_file(tensors | {tensor: tensors[tensor] * np.float32(factor)}, folder / "model.safetensors")
    with pytest.raises(ModelError, match=message):
        load_runner(folder, SETTINGS)


@pytest.mark.parametrize("settings", [{"context": 5}, {"max_step_tokens": 3}, {"kv_memory_mb": 1}])
def test_a_small_engine_is_tried_too(parity_fixtures: Path, settings: dict[str, int]) -> None:
    load_runner(parity_fixtures / "hf" / "llama_llama3", SETTINGS.model_copy(update=settings)).close()
