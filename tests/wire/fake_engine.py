"""The engine process with the fake runner: `python -m fake_engine`. HEADWAY_TEST_STEP_S: seconds per step."""

import os

from server_rig import make_runner, make_text

from headway.core.config import Settings
from headway.core.runner import Runner
from headway.serving.engine_process import main


def load(settings: Settings) -> Runner:
    pace = float(os.environ.get("HEADWAY_TEST_STEP_S", "0"))
    return make_runner(make_text().vocab_size, step_s=lambda batch: pace)


if __name__ == "__main__":
    main(load)
