"""`headway bench step`: what is measured, beside which limit, and what is left out."""

import json
from array import array
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from headway.bench import step, step_room
from headway.bench.engine_alone import EngineAlone
from headway.bench.sampling_share import FULL, GREEDY, sampling_share
from headway.bench.step_room import Row, make_room
from headway.cli.main import app
from headway.core.config import EngineSettings, Settings
from headway.core.runner import Batch, Opening, RunnerInfo, Work
from headway.model.fake_runner import FakeRunner, default_info
from headway.model.load import load_runner
from headway.model.machine import Machine
from headway.model.native_runner import NativeRunner

ENGINE = EngineSettings(threads=1, kv_memory_mb=1, max_sequences=4, max_step_tokens=64)
MACHINE = Machine(threads=2, isa="x", read_bytes_per_s=1e9, int8_macs_per_s=1e10)


@pytest.fixture
def tiny(parity_fixtures: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return parity_fixtures / "hf" / "qwen2"


@pytest.fixture
def runner(tiny: Path) -> Iterator[NativeRunner]:
    runner = load_runner(tiny, ENGINE)
    yield runner
    runner.close()


def test_a_copied_block_serves_like_the_computed_one(runner: NativeRunner) -> None:
    prompt = array("I", range(5, 25))  # two blocks
    runner.submit(Batch([Work(0, 0, prompt, (array("I", [3, 1]),), False)], [Opening(0, GREEDY, prompt, 20)]))
    runner.collect()
    for source, target in ((3, 4), (1, 7)):
        runner.copy_block(source, target)
    known = prompt + array("I", [9])
    logits = []
    for slot, table in enumerate(([3, 1], [4, 7])):
        work = Work(slot, 20, known[-1:], (array("I", table),), True)
        runner.submit(Batch([work], [Opening(slot, GREEDY, known, 20)]))
        runner.collect()
        logits.append(runner.logits(0))
    np.testing.assert_array_equal(*logits)
    with pytest.raises(ValueError, match="no such block"):
        runner.copy_block(0, runner.info.blocks)


@pytest.mark.parametrize("family", ["qwen2", "gemma3"])  # the second has two layer groups
def test_streams_decode_together_as_often_as_they_are_asked(tiny: Path, family: str) -> None:
    runner = load_runner(tiny.parent / family, ENGINE)
    alone = EngineAlone(runner, Settings(engine=ENGINE), runner.copy_block)
    for _ in range(2):  # the second time from the prefix cache
        assert alone.decode(4, 48, 6, GREEDY) > 0
    assert alone.prefill(70) > 0
    with pytest.raises(RuntimeError, match="sequences: is the KV pool too small"):
        alone.decode(5, 16, 4, GREEDY)  # there are four slots
    runner.close()


def test_sampling_is_what_a_step_takes_beyond_greedy() -> None:
    drawn = {}

    def seconds(batch: Batch) -> float:
        drawn.update({opening.slot: opening.sampling.temperature for opening in batch.openings})
        return 0.005 if drawn[batch.work[0].slot] == FULL.temperature else 0.004

    info = default_info(max_batch_tokens=16)
    assert sampling_share(FakeRunner(info, step_time=seconds), 3, 40, rounds=2, steps=2) == pytest.approx(0.2, abs=0.02)


def row(bound: str, sequences: int = 4, context: int = 100, steps: int = 8) -> Row:
    return Row("r", "r", sequences, context, steps, bound)  # type: ignore[arg-type]


def test_limits_follow_what_binds() -> None:
    # A layer of 1,000 bytes a token that sees everything, and one of 500 that sees 40.
    info: RunnerInfo = default_info(
        layer_macs=900_000, head_macs=100_000, bytes_per_token=600_000, kv_bytes=((0, 1000), (40, 500))
    )
    read, compute, keys = 600_000 / 1e9, 4 * 1_000_000 / 1e10, 4 * (100 * 1000 + 40 * 500) / 1e9
    assert info.kv_bytes_read(30) == 30 * 1500
    assert step.limit_tokens_per_s(row("read", sequences=1), info, MACHINE) == pytest.approx(1 / read)
    assert step.limit_tokens_per_s(row("compute"), info, MACHINE) == pytest.approx(4 / compute)
    assert step.limit_tokens_per_s(row("both"), info, MACHINE) == pytest.approx(4 / (read + keys + compute))
    prefill = (100 * 900_000 + 100_000) / 1e10
    assert step.limit_tokens_per_s(row("compute", 1, steps=0), info, MACHINE) == pytest.approx(100 / prefill)


def test_the_pool_is_made_for_what_fits(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = (Row("crowd", "", 100, 64, 8, "both"), Row("long", "", 1, 100_000, 0, "compute"))
    engine, left_out = make_room(rows, tiny, ENGINE)
    assert engine.max_sequences == 100 and engine.kv_memory_mb > 1
    assert list(left_out) == ["long"] and "exceed the context" in left_out["long"]
    monkeypatch.setattr(step_room, "free_memory", lambda: 1 << 20)
    engine, left_out = make_room(rows, tiny, ENGINE)
    assert engine == ENGINE and "MB of free memory" in left_out["crowd"]


def test_the_command_prints_what_it_measured_and_what_it_left_out(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = (
        Row("few", "few", 2, 32, 4, "both"),
        Row("prompt", "prompt", 1, 64, 0, "compute"),
        Row("endless", "endless", 1, 100_000, 0, "compute"),
    )
    monkeypatch.setattr(step, "ROWS", rows)
    monkeypatch.setattr(step, "SAMPLED", Row("sampled", "sampled", 2, 16, 192, "compute"))
    monkeypatch.setattr(step, "ROUNDS", 1)
    monkeypatch.setattr(step, "probe", lambda threads: MACHINE)
    done = CliRunner().invoke(app, ["bench", "step", "--model", str(tiny), "--threads", "1", "--json"])
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    assert report["few"]["tokens_per_s"] > 0 and report["prompt"]["share"] > 0 and report["sampled"] < 1
    assert list(report["left_out"]) == ["endless"] and "endless" not in report
    assert "measuring few" in done.stderr
