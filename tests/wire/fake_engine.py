"""The engine process with the fake runner: `python -m fake_engine`. HEADWAY_TEST_STEP_S: seconds per step;
HEADWAY_TEST_SLOTS: sequences at once."""

import os
import signal
from pathlib import Path

from server_rig import make_runner, make_text

from headway.core.config import Settings
from headway.core.errors import ModelError
from headway.core.runner import Batch, Runner
from headway.model.grammar import Grammars
from headway.serving.engine_process import main

POISON = "\x01"  # whatever holds this kills the engine when it is computed


def load(settings: Settings) -> Runner:
    broken = os.environ.get("HEADWAY_TEST_BROKEN")
    if broken and Path(broken).exists():
        raise ModelError("the model is broken")
    pace = float(os.environ.get("HEADWAY_TEST_STEP_S", "0"))
    slots = int(os.environ.get("HEADWAY_TEST_SLOTS", "64"))
    text = make_text()
    (poison,) = text.tokenizer.encode(POISON, add_special=False)

    def step_s(batch: Batch) -> float:
        if any(poison in work.tokens for work in batch.work):
            os.kill(os.getpid(), signal.SIGSEGV)
        return pace

    def grammars() -> Grammars:
        return Grammars(text.tokenizer, text.vocab_size, text.end_ids)

    return make_runner(text.vocab_size, step_s=step_s, grammars=grammars, slots=slots)


if __name__ == "__main__":
    main(load)
