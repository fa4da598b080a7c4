"""Which of the things that `headway bench step` measures fit the model and the machine, and the KV pool they need."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from headway.bench.engine_alone import EngineAlone
from headway.core.config import EngineSettings
from headway.model.inspection import inspect_model
from headway.model.machine import free_memory

USABLE = 0.8  # of the memory that is free


@dataclass(frozen=True, slots=True)
class Row:
    """One thing to measure: `steps` decodes of `sequences` streams after `context` tokens; with 0 steps, the prefill of
    a prompt of `context` tokens."""

    name: str  # in JSON
    title: str  # in a table
    sequences: int
    context: int
    steps: int
    bound: Literal["read", "compute", "both"]  # by what it is limited


def make_room(rows: Sequence[Row], path: Path, settings: EngineSettings) -> tuple[EngineSettings, dict[str, str]]:
    """Settings with a KV pool and slots for all rows but those that do not fit: why not, by name. Raises ModelError."""
    model = inspect_model(path, settings)
    context = settings.context or model.context
    free = free_memory()
    left_out: dict[str, str] = {}
    pool_mb, slots = settings.kv_memory_mb, settings.max_sequences
    for row in rows:
        needed = EngineAlone.needed(row.sequences, row.context, row.steps)
        needed_mb = -(-needed * model.kv_bytes_per_token >> 20) + 1
        if needed // row.sequences > context:
            left_out[row.name] = f"{needed // row.sequences:,} tokens exceed the context of {context:,}"
        elif free is not None and (needed_mb << 20) + model.weight_bytes > USABLE * free:
            left_out[row.name] = f"{needed_mb:,} MB of keys and values in {free >> 20:,} MB of free memory"
        else:
            pool_mb, slots = max(pool_mb, needed_mb), max(slots, row.sequences)
    return settings.model_copy(update={"kv_memory_mb": pool_mb, "max_sequences": slots}), left_out
