"""`headway bench step`: the engine without HTTP, beside what the machine could do at best.

engine_alone     drives it, with copied_prompts    step_room    which rows fit, and the KV pool they need
sampling_share   what sampling takes              step         what is measured, and its limits
"""

import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from headway.bench.engine_alone import EngineAlone
from headway.bench.sampling_share import FULL, sampling_share
from headway.bench.step_room import Row, make_room
from headway.core.config import Settings
from headway.core.runner import RunnerInfo
from headway.core.sampling import Sampling
from headway.model.load import load_runner
from headway.model.machine import Machine, probe

ROWS = (
    Row("decode_1", "decode, 1 sequence", 1, 128, steps=64, bound="read"),
    Row("decode_8", "decode, 8 sequences", 8, 128, steps=64, bound="compute"),
    Row("decode_32", "decode, 32 sequences", 32, 128, steps=32, bound="compute"),
    Row("decode_32_2048", "decode, 32 sequences, 2,048 tokens of context", 32, 2048, steps=8, bound="both"),
    Row("prefill_512", "prefill, 512 tokens", 1, 512, steps=0, bound="compute"),
    Row("prefill_4096", "prefill, 4,096 tokens", 1, 4096, steps=0, bound="compute"),
)
SAMPLED = Row("sampling_32", "sampling, of a step with 32 sequences", 32, 128, steps=192, bound="compute")
ROUNDS = 5
LEAST_ROUNDS, LONG_S = 3, 15.0  # no more than three rounds once they have taken so long

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Speed:
    """Tokens per second, the machine's limit for the same work, and their ratio."""

    tokens_per_s: float
    limit_tokens_per_s: float
    share: float


@dataclass(frozen=True, slots=True)
class StepReport:
    speeds: dict[str, Speed]  # by a row's name
    sampling_share: float | None  # of a step's time in the runner, beyond drawing greedily
    left_out: dict[str, str]  # why a row was not measured
    machine: Machine

    def as_json(self) -> dict[str, object]:
        speeds: dict[str, object] = {name: asdict(speed) for name, speed in self.speeds.items()}
        rest = {SAMPLED.name: self.sampling_share, "left_out": self.left_out, "machine": asdict(self.machine)}
        return speeds | rest


def measure(path: Path, settings: Settings, progress: Progress) -> StepReport:
    """Medians of five rounds each, or of three where they take long. The probe runs first, in the same process and with
    the same threads. The KV pool is made large enough for all rows; those that do not fit the model or the machine are
    left out.
    """
    progress("probing the machine")
    machine = probe(settings.engine.threads)
    engine, left_out = make_room((*ROWS, SAMPLED), path, settings.engine)
    runner = load_runner(path, engine)
    try:
        bench = EngineAlone(runner, settings.model_copy(update={"engine": engine}), runner.copy_block)
        speeds = {}
        for row in ROWS:
            if row.name not in left_out:
                progress(f"measuring {row.title}")
                speed = statistics.median(_rounds(bench, row))
                limit = limit_tokens_per_s(row, runner.info, machine)
                speeds[row.name] = Speed(speed, limit, speed / limit)
        share = None
        if SAMPLED.name not in left_out:
            progress(f"measuring {SAMPLED.title}")
            share = sampling_share(runner, SAMPLED.sequences, SAMPLED.context)
        return StepReport(speeds, share, left_out, machine)
    finally:
        runner.close()


def limit_tokens_per_s(row: Row, info: RunnerInfo, machine: Machine) -> float:
    """What one step, or the whole prompt, takes at best, by what binds it: reading all weights once; multiply-adds with
    weights, of which attention's are left out; or reading weights, keys and values, and then the multiply-adds."""
    read = info.bytes_per_token
    if row.steps:
        tokens, macs = row.sequences, row.sequences * (info.layer_macs + info.head_macs)
    else:
        tokens, macs = row.context, row.context * info.layer_macs + info.head_macs
    if row.bound == "both":
        read += row.sequences * info.kv_bytes_read(row.context)
    seconds = read / machine.read_bytes_per_s if row.bound != "compute" else 0.0
    seconds += macs / machine.int8_macs_per_s if row.bound != "read" else 0.0
    return tokens / seconds


def _rounds(bench: EngineAlone, row: Row) -> list[float]:
    """Tokens per second of each."""
    start, speeds = time.monotonic(), list[float]()
    while len(speeds) < ROUNDS and (len(speeds) < LEAST_ROUNDS or time.monotonic() - start < LONG_S):
        speeds.append(_tokens_per_s(bench, row))
    return speeds


def _tokens_per_s(bench: EngineAlone, row: Row) -> float:
    if not row.steps:
        return row.context / bench.prefill(row.context)
    sampling = Sampling(max_tokens=1, temperature=FULL.temperature, top_p=FULL.top_p, ignore_eos=True)
    seconds = bench.decode(row.sequences, row.context, row.steps, sampling)
    return row.sequences * row.steps / seconds
