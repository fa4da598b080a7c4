"""Entry point of the engine process."""

import gc
import signal
from collections.abc import Callable
from pathlib import Path

from headway.core.config import Settings
from headway.core.errors import HeadwayError
from headway.core.runner import Runner
from headway.serving.child import SETTINGS, Child
from headway.serving.engine_loop import EngineLoop
from headway.serving.ipc import EngineSocket
from headway.serving.step_board import StepBoard

MOST_YOUNG = 50_000  # objects that may pile up before Python collects garbage all the same


def defer_garbage() -> None:
    """Has Python look for cycles rarely: a look through ten thousand requests holds up a step for tens of ms."""
    gc.set_threshold(MOST_YOUNG, 50, 1000)


def main(load_runner: Callable[[Settings], Runner] | None = None) -> None:
    """Entry point of the process; `load_runner` is for tests that want another runner."""
    child = Child.start()
    settings = child.spec.settings
    board = StepBoard(Path(child.spec.board)) if child.spec.board else None
    socket = EngineSocket(child.spec.address)
    loop = EngineLoop(
        socket,
        settings,
        child.spec.epoch,
        board=board,
        on_settings=lambda live: child.tell(f"{SETTINGS} {live}"),
        suspects=child.spec.suspects,
    )
    signal.signal(signal.SIGTERM, lambda *_: loop.stop())
    child.on_command(loop.command)
    load = load_runner or _load
    defer_garbage()
    try:
        loop.run(lambda: load(settings), child.ready)
    except HeadwayError as error:
        child.fail(error.message)
    finally:
        gc.unfreeze()


def _load(settings: Settings) -> Runner:
    from headway.model.load import (
        load_runner,  # late: the model layer is heavy, and tests bring their own
    )

    assert settings.model is not None, "the parent resolves the model"
    return load_runner(Path(settings.model), settings.engine)


if __name__ == "__main__":
    main()
