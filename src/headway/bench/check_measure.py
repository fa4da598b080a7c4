"""Teaches a cost model what steps cost here: a short mix of prefill and decode on the real engine."""

from collections.abc import Callable

from headway.bench.random_request import random_request
from headway.core.clock import Clock
from headway.core.config import PromiseSettings, Settings
from headway.core.events import StepMessage
from headway.core.request import Cancel
from headway.core.runner import Runner
from headway.scheduling.cost_model import CostModel
from headway.scheduling.engine import Engine

SECONDS = 6.0  # the mix is repeated for so long
LONGEST_S = 30.0  # a slow model does not get further into it
ENOUGH = 60  # steps, whatever they take
STREAM_PROMPT = 16  # tokens: streams are there for their decodes

Progress = Callable[[str], None]


def measure(runner: Runner, settings: Settings, costs: CostModel, clock: Clock, progress: Progress) -> Engine:
    """`costs` learns; the engine that it came from tells how much there is room for."""
    mix = _Mix(runner, settings, costs, clock)
    phases: list[tuple[str, Callable[[], None]]] = [
        ("prefill alone", lambda: mix.prefill((32, 128, 512, 1024))),
        ("decode, 1 stream", lambda: mix.decode(1, 24)),
        ("decode, 8 streams", lambda: mix.decode(8, 16)),
        ("decode, 32 streams", lambda: mix.decode(32, 8)),
        ("prefill beside 8 streams", lambda: mix.prefill((64, 256, 512), beside=8)),
    ]
    begin, first = clock.now(), True
    while True:
        for name, phase in phases:
            passed = clock.now() - begin
            if costs.observed >= ENOUGH and (passed > LONGEST_S or (not first and passed > SECONDS)):
                return mix.engine
            if first:
                progress(f"measuring {name}")
            phase()
        first = False


class _Mix:
    """Drives one engine that lets everything in, as nothing is promised; only the gap still sizes prompts' pieces."""

    def __init__(self, runner: Runner, settings: Settings, costs: CostModel, clock: Clock) -> None:
        engine = settings.engine.model_copy(update={"prefix_cache": False})
        batching = settings.batching.model_copy(update={"policy": "continuous"})
        tuning = settings.tuning.model_copy(update={"enabled": False})
        promise = PromiseSettings(itl_ms=settings.promise.itl_ms)
        changed = {"engine": engine, "batching": batching, "tuning": tuning, "promise": promise}
        self.engine = Engine(
            runner, settings.model_copy(update=changed), clock, epoch=0, publish=self._publish, costs=costs
        )
        self.engine.warm_up()
        self._vocab = runner.info.vocab_size
        scheduler = self.engine.scheduler
        self._longest = min(scheduler.context, scheduler.blocks.capacity)
        self._clock = clock
        self._serial = 0
        self._live: set[int] = set()
        self._begun: set[int] = set()  # have got a token

    def prefill(self, lengths: tuple[int, ...], beside: int = 0) -> None:
        """One prompt after the other, beside so many streams if they last so long."""
        streams = self._streams(beside, 64)
        for length in lengths:
            prompt = self._submit(length, 1)
            while prompt in self._live:
                self._step()
        self._end(streams)

    def decode(self, streams: int, steps: int) -> None:
        started = self._streams(streams, steps)
        for _ in range(steps):
            self._step()
        self._end(started)

    def _streams(self, wanted: int, tokens: int) -> list[int]:
        """Streams that have begun, as many as fit; each has more than `tokens` to go when the last one begins."""
        each = STREAM_PROMPT + tokens + wanted
        fit = min(wanted, self.engine.scheduler.capacity, self.engine.scheduler.blocks.capacity // each)
        started = [self._submit(STREAM_PROMPT, tokens + wanted) for _ in range(fit)]
        while any(stream in self._live and stream not in self._begun for stream in started):
            self._step()
        return started

    def _submit(self, prompt: int, output: int) -> int:
        self._serial += 1
        prompt = max(1, min(prompt, self._longest - output - 1))
        self._live.add(self._serial)
        self.engine.submit(random_request(self._serial, prompt, output, self._vocab, self._clock.now()))
        return self._serial

    def _end(self, streams: list[int]) -> None:
        for stream in streams:
            self.engine.submit(Cancel(id=stream, epoch=0, reason="measured"))
        while self.engine.has_work:
            self._step()
        self._live.clear()
        self._begun.clear()

    def _step(self) -> None:
        """RuntimeError instead of a loop without end, should the engine have nothing to do while something is live."""
        if not self.engine.step() and self._live:
            raise RuntimeError("the engine waits while it is being measured")

    def _publish(self, worker: int, message: StepMessage) -> None:
        for emission in message.emissions:
            if emission.tokens:
                self._begun.add(emission.id)
            if emission.finish is not None:
                self._live.discard(emission.id)
