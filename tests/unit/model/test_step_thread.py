import threading

import pytest

from headway.core.runner import Batch, StepResult
from headway.model.step_thread import StepThread

BATCH = Batch([], [])


def test_start_waits_until_the_step_has_left_python_and_no_longer() -> None:
    prepared, go = threading.Event(), threading.Event()

    def compute(batch: Batch) -> StepResult:
        prepared.set()
        thread.leave()
        assert go.wait(10)
        return StepResult([], 1.0)

    thread = StepThread(compute, "step")
    for _ in range(3):
        thread.start(BATCH)
        assert prepared.is_set()
        go.set()
        assert thread.result().compute_s == 1.0
        prepared.clear()
        go.clear()
    thread.close()


def test_what_a_step_raises_is_raised_by_its_result_alone() -> None:
    outcomes: list[StepResult | Exception] = [ValueError("no"), StepResult([], 2.0)]

    def compute(batch: Batch) -> StepResult:
        outcome = outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    thread = StepThread(compute, "step")
    thread.start(BATCH)
    with pytest.raises(ValueError, match="no"):
        thread.result()
    thread.start(BATCH)
    assert thread.result().compute_s == 2.0
    thread.close()


def test_an_interrupt_while_it_starts_loses_no_step(monkeypatch: pytest.MonkeyPatch) -> None:
    told = threading.Event()

    def compute(batch: Batch) -> StepResult:
        assert told.wait(10)
        return StepResult([], 3.0)

    def interrupted() -> bool:
        raise KeyboardInterrupt

    thread = StepThread(compute, "step")
    with monkeypatch.context() as patch:
        patch.setattr(thread._left, "wait", interrupted)
        thread.start(BATCH)  # has not left
    told.set()
    with pytest.raises(KeyboardInterrupt):
        thread.result()
    assert thread.result().compute_s == 3.0
    thread.close()
