"""An engine without HTTP, driven step by step: streams that do nothing but decode, or one prompt alone.

Everything a step costs is inside the measured time: planning, the forward pass, sampling, committing, publishing.
"""

import random
import time
from array import array

import msgspec

from headway.bench.copied_prompts import CopiedPrompts, Copy
from headway.core.clock import MonotonicClock
from headway.core.config import BatchingSettings, PromiseSettings, Settings
from headway.core.events import StepMessage
from headway.core.request import EngineRequest
from headway.core.runner import Runner
from headway.core.sampling import Sampling
from headway.scheduling.engine import Engine

SPARE = 8  # tokens that a stream may make before the first and after the last measured step


class EngineAlone:
    """Prompts are random, so that only `decode` finds anything in the prefix cache: what it has put there itself."""

    def __init__(self, runner: Runner, settings: Settings, copy: Copy) -> None:
        """`copy`: the runner's, of a KV block."""
        # Prompts in whole pieces: no stream's pace is to be kept here, only the engine's own speed seen.
        changed = {
            "engine": settings.engine.model_copy(update={"prefix_cache": True}),
            "batching": BatchingSettings(),
            "tuning": settings.tuning.model_copy(update={"enabled": False}),
            "promise": PromiseSettings(itl_ms=0.0),
        }
        settings = settings.model_copy(update=changed)
        self._runner = CopiedPrompts(runner, copy)
        self._engine = Engine(self._runner, settings, MonotonicClock(), epoch=0, publish=self._publish)
        self._engine.warm_up()
        self._vocab = runner.info.vocab_size
        self._random = random.Random(0)
        self._serial = 0
        self._begun: set[int] = set()  # have got a token

    @staticmethod
    def needed(sequences: int, context: int, steps: int) -> int:
        """Tokens of KV that `decode` takes at most, with blocks of at most 16."""
        return sequences * (context + steps + SPARE + 2 * 16)  # the last block of a prompt is computed again

    def decode(self, sequences: int, context: int, steps: int, sampling: Sampling) -> float:
        """Seconds of `steps` steps in which each of `sequences` streams makes one token, after `context` and more.

        Every stream has keys and values of its own: those of the first one's prompt, copied. They stay in the prefix
        cache, where the streams find them; so they begin together, and none is far ahead.
        RuntimeError if the engine did not decode all of them in every step.
        """
        prompts = [self._prompt(random.Random(f"{context}/{index}"), context) for index in range(sequences)]
        self._keep(prompts[:1], sampling)
        self._runner.copying = True
        self._keep(prompts[1:], sampling)
        self._runner.copying = False
        for prompt in prompts:
            self._submit(prompt, msgspec.structs.replace(sampling, max_tokens=steps + SPARE))
        while len(self._begun) < sequences:
            self._engine.step()
        self._engine.step()
        start, before = time.perf_counter(), self._engine.scheduler.counters.computed_tokens
        for _ in range(steps):
            self._engine.step()
        elapsed = time.perf_counter() - start
        tokens = self._engine.scheduler.counters.computed_tokens - before
        self._drain()
        if tokens != steps * sequences:
            raise RuntimeError(f"{tokens} tokens in {steps} steps of {sequences} sequences: is the KV pool too small?")
        return elapsed

    def prefill(self, tokens: int) -> float:
        """Seconds from the arrival of one new prompt to its first token."""
        prompt = self._prompt(self._random, tokens)
        self._submit(prompt, Sampling(max_tokens=1, temperature=0.0, ignore_eos=True))
        start = time.perf_counter()
        while not self._begun:
            self._engine.step()
        elapsed = time.perf_counter() - start
        self._drain()
        return elapsed

    def _keep(self, prompts: list[bytes], sampling: Sampling) -> None:
        """Leaves them in the prefix cache."""
        for prompt in prompts:
            self._submit(prompt, msgspec.structs.replace(sampling, max_tokens=1))
        self._drain()

    def _prompt(self, chance: random.Random, length: int) -> bytes:
        return array("I", (chance.randrange(self._vocab) for _ in range(length))).tobytes()

    def _submit(self, prompt: bytes, sampling: Sampling) -> None:
        self._serial += 1
        sampling = msgspec.structs.replace(sampling, seed=self._serial)
        now = time.monotonic()
        self._engine.submit(EngineRequest(id=self._serial, epoch=0, prompt=prompt, sampling=sampling, arrival=now))

    def _drain(self) -> None:
        while self._engine.has_work:
            self._engine.step()
        self._begun.clear()

    def _publish(self, worker: int, message: StepMessage) -> None:
        self._begun.update(emission.id for emission in message.emissions if emission.tokens)
