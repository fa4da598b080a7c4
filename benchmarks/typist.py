"""A `headway serve` whose engine types a known text at a set pace in place of a model: `python typist.py STEP_MS`.

Everything else is the real thing: the default model's tokenizer and template, the processes, the scheduler. Each of its
tokens is one word, so each makes one event.
"""

import os
import sys
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from headway.bench.load_workload import WORDS
from headway.core.config import Settings, load_settings
from headway.core.runner import Runner
from headway.core.sampling import Sampling
from headway.model.fake_runner import FakeRunner, Vocabulary, default_info
from headway.model.source import resolve
from headway.model.text import load_text
from headway.serving.engine_process import main
from headway.serving.supervisor import Supervisor

PACE = "TYPIST_STEP_MS"  # in the environment of the engine
CONTEXT = 2048
SLOTS = 64


@dataclass(frozen=True)
class Typed(Vocabulary):
    """The words over and over."""

    text: tuple[int, ...] = ()

    def next_token(
        self, context: "array[int]", sampling: Sampling, prompt_length: int, allowed: Sequence[int] | None = None
    ) -> int:
        return self.text[len(context) % len(self.text)]


def load(settings: Settings) -> Runner:
    """For the engine's process."""
    assert settings.model is not None
    text = load_text(Path(settings.model))
    info = default_info(
        vocab_size=text.vocab_size, context=CONTEXT, blocks=SLOTS * CONTEXT // 16, slots=SLOTS, end_ids=text.end_ids
    )
    step_s = float(os.environ[PACE]) / 1e3
    runner = FakeRunner(info, step_time=lambda batch: step_s)
    words = tuple(text.tokenizer.encode("".join(f" {word}" for word in WORDS), add_special=False))
    runner.vocabulary = Typed(0, 0, text=words)
    return runner


def serve(step_ms: str) -> int:
    os.environ[PACE] = step_ms
    os.environ["PYTHONPATH"] = str(Path(__file__).parent)  # where the engine's process finds this module
    model = str(resolve(None, False))
    settings = load_settings(None, {"model": model, "server": {"port": 0}})
    return Supervisor(settings, engine_module="typist", api_module="headway.delivery.api_process").run()


if __name__ == "__main__":
    # The supervisor starts its engine by this module's name alone.
    if len(sys.argv) > 1:
        sys.exit(serve(sys.argv[1]))
    main(load)
