"""The engine process with the fake runner: `python -m fake_engine`. HEADWAY_TEST_STEP_S: seconds per step."""

import os
from pathlib import Path

from server_rig import make_runner, make_text

from headway.core.config import Settings
from headway.core.errors import ModelError
from headway.core.runner import Runner
from headway.model.grammar import Grammars
from headway.serving.engine_process import main


def load(settings: Settings) -> Runner:
    broken = os.environ.get("HEADWAY_TEST_BROKEN")
    if broken and Path(broken).exists():
        raise ModelError("the model is broken")
    pace = float(os.environ.get("HEADWAY_TEST_STEP_S", "0"))
    text = make_text()

    def grammars() -> Grammars:
        return Grammars(text.tokenizer, text.vocab_size, text.end_ids)

    return make_runner(text.vocab_size, step_s=lambda batch: pace, grammars=grammars)


if __name__ == "__main__":
    main(load)
