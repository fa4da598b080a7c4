"""`headway bench step`: the engine without HTTP, beside what the machine could do at best.

Everything a step costs is inside the measured time: planning, the forward pass, sampling, committing, publishing.
"""

import random
import statistics
import time
from array import array
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from headway.core.clock import MonotonicClock
from headway.core.config import Settings
from headway.core.events import StepMessage
from headway.core.request import EngineRequest
from headway.core.runner import Runner
from headway.core.sampling import Sampling
from headway.model.load import load_runner
from headway.model.machine import Machine, probe
from headway.scheduling.engine import Engine

CONTEXT = 128  # tokens before the first measured one
STEPS = 64  # measured decode steps in a round
ENTRY_STEPS = 64  # decode steps that the first streams may make before the last is prefilled
ROUNDS = 5
PREFILL = 512

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Speed:
    """Tokens per second, the machine's limit for the same work, and their ratio."""

    tokens_per_s: float
    limit_tokens_per_s: float
    share: float


@dataclass(frozen=True, slots=True)
class StepReport:
    decode_1: Speed
    decode_8: Speed
    decode_32: Speed
    prefill_512: Speed
    machine: Machine

    def as_json(self) -> dict[str, object]:
        return asdict(self)


def measure(path: Path, settings: Settings, progress: Progress) -> StepReport:
    """Medians of five rounds each. The probe runs first, in the same process and with the same threads."""
    progress("probing the machine")
    machine = probe(settings.engine.threads)
    runner = load_runner(path, settings.engine)
    try:
        bench = _Bench(runner, settings)
        info = runner.info
        by_compute = machine.int8_macs_per_s / (info.layer_macs + info.head_macs)
        limits = {1: machine.read_bytes_per_s / info.bytes_per_token, 8: by_compute, 32: by_compute}
        speeds = {}
        for sequences, limit in limits.items():
            progress(f"decoding {sequences} sequence{'s' if sequences > 1 else ''}")
            speeds[sequences] = _speed(statistics.median(bench.decode(sequences) for _ in range(ROUNDS)), limit)
        progress(f"prefilling {PREFILL} tokens")
        prefill = statistics.median(bench.prefill() for _ in range(ROUNDS))
        prefill_limit = machine.int8_macs_per_s * PREFILL / (PREFILL * info.layer_macs + info.head_macs)
        return StepReport(speeds[1], speeds[8], speeds[32], _speed(prefill, prefill_limit), machine)
    finally:
        runner.close()


def _speed(tokens_per_s: float, limit: float) -> Speed:
    return Speed(tokens_per_s, limit, tokens_per_s / limit)


class _Bench:
    """Drives one engine with random prompts, so that nothing comes from the prefix cache."""

    def __init__(self, runner: Runner, settings: Settings) -> None:
        # Prompts in whole pieces: no stream's pace is to be kept here, only the engine's own speed seen.
        promise = settings.promise.model_copy(update={"itl_ms": 0.0})
        settings = settings.model_copy(update={"promise": promise})
        self._engine = Engine(runner, settings, MonotonicClock(), epoch=0, publish=self._publish)
        self._engine.warm_up()
        self._vocab = runner.info.vocab_size
        self._random = random.Random(0)
        self._serial = 0
        self._streams: set[int] = set()  # that have got a token

    def decode(self, sequences: int) -> float:
        """Tokens per second of `sequences` streams that have all been prefilled, and nothing else beside them.

        RuntimeError if the engine did not decode all of them in every step.
        """
        self._submit(sequences, CONTEXT, STEPS + ENTRY_STEPS)
        while len(self._streams) < sequences:
            self._engine.step()
        self._engine.step()
        start, before = time.perf_counter(), self._engine.scheduler.counters.computed_tokens
        for _ in range(STEPS):
            self._engine.step()
        elapsed = time.perf_counter() - start
        tokens = self._engine.scheduler.counters.computed_tokens - before
        self._drain()
        if tokens != STEPS * sequences:
            raise RuntimeError(f"{tokens} tokens in {STEPS} steps of {sequences} sequences: is the KV pool too small?")
        return tokens / elapsed

    def prefill(self) -> float:
        """Prompt tokens per second of one prompt, up to its first token."""
        self._submit(1, PREFILL, 1)
        start = time.perf_counter()
        while not self._streams:
            self._engine.step()
        elapsed = time.perf_counter() - start
        self._drain()
        return PREFILL / elapsed

    def _submit(self, count: int, prompt: int, output: int) -> None:
        self._streams.clear()
        for _ in range(count):
            self._serial += 1
            ids = array("I", (self._random.randrange(self._vocab) for _ in range(prompt)))
            sampling = Sampling(max_tokens=output, temperature=0.8, top_p=0.95, seed=self._serial, ignore_eos=True)
            now = time.monotonic()
            self._engine.submit(
                EngineRequest(id=self._serial, epoch=0, prompt=ids.tobytes(), sampling=sampling, arrival=now)
            )

    def _drain(self) -> None:
        while self._engine.has_work:
            self._engine.step()

    def _publish(self, worker: int, message: StepMessage) -> None:
        self._streams.update(emission.id for emission in message.emissions if emission.tokens)
