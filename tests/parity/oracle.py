"""Runs token sequences through a runner and keeps every position's logits."""

from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from numpy.typing import NDArray

import headway._native as _native
from headway.core.config import EngineSettings
from headway.core.runner import Batch, Opening, Work
from headway.core.sampling import Sampling
from headway.model.load import load_runner
from headway.model.native_runner import NativeRunner

GREEDY = Sampling(max_tokens=1, temperature=0.0)
FIXTURES = Path(__file__).parent / "fixtures"
ISAS = ["portable", "avx2", "avx512vnni", "avx512bf16", "amx"]


# Positions to serve of models whose context is longer, where that changes how they rotate.
CONTEXTS = {"phi3_short": 128}


@contextmanager
def asking_for(isa: str) -> Iterator[None]:
    """Has models opened inside computed with this instruction set; skips the test where the processor lacks it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEADWAY_ISA", isa)
        try:
            assert _native.best_isa() == isa
        except ValueError:
            pytest.skip(f"this processor does not run {isa}")
        yield


def open_runner(path: Path, threads: int = 2, kv_type: Literal["int8", "f16"] = "f16") -> NativeRunner:
    settings = EngineSettings(
        threads=threads,
        context=CONTEXTS.get(path.stem),
        kv_memory_mb=128,
        kv_type=kv_type,
        max_sequences=32,
        max_step_tokens=2048,
    )
    return load_runner(path, settings)


class Teacher:
    """Feeds known tokens and reads logits; each sequence has a slot and its own blocks."""

    def __init__(self, runner: NativeRunner, sequences: list[list[int]]) -> None:
        self.runner = runner
        self.known = [array("I", ids) for ids in sequences]
        self.computed = [0] * len(sequences)
        size = runner.info.block_size
        longest = max(map(len, sequences)) + 64
        per = -(-longest // size)
        groups = runner.info.layer_groups
        many = len(sequences) * groups
        tables = [array("I", range(i, i + per * many, many)) for i in range(many)]  # interleaved: none is contiguous
        self.tables = [tuple(tables[i : i + groups]) for i in range(0, many, groups)]
        self.openings = [Opening(i, GREEDY, ids, len(ids)) for i, ids in enumerate(self.known)]

    def advance(self, counts: list[int]) -> list[tuple[NDArray[np.float32], int] | None]:
        """Computes counts[i] more tokens of each sequence in one step; logits and greedy choice after the last."""
        work, who = [], []
        for i, count in enumerate(counts):
            if count:
                start = self.computed[i]
                work.append(Work(i, start, self.known[i][start : start + count], self.tables[i], True))
                who.append(i)
                self.computed[i] += count
        self.runner.submit(Batch(work, self.openings))
        self.openings = []
        drawn = self.runner.collect().sampled
        out: list[tuple[NDArray[np.float32], int] | None] = [None] * len(counts)
        for row, i in enumerate(who):
            sampled = drawn[row]
            assert sampled is not None and sampled.error is None
            out[i] = (self.runner.logits(row), sampled.token)
        return out


def all_logits(runner: NativeRunner, sequences: list[list[int]]) -> list[NDArray[np.float32]]:
    """Logits at every position of every sequence, [length, vocab] each: one token of each sequence a step."""
    teacher = Teacher(runner, sequences)
    rows: list[list[NDArray[np.float32]]] = [[] for _ in sequences]
    for step in range(max(map(len, sequences))):
        counts = [1 if step < len(ids) else 0 for ids in sequences]
        for i, got in enumerate(teacher.advance(counts)):
            if got is not None:
                rows[i].append(got[0])
    return [np.stack(r) for r in rows]
