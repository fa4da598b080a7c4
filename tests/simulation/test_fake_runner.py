"""The oracle must catch the faults it exists for."""

import time
from array import array
from typing import Any

import pytest
from rig import make_request

from headway.core.clock import ManualClock, MonotonicClock
from headway.core.runner import Batch, Opening, Sampled, Work
from headway.core.sampling import Sampling
from headway.model.fake_runner import FakeRunner, default_info

GREEDY = Sampling(max_tokens=9, temperature=0.0)


def ids(*values: int) -> "array[int]":
    return array("I", values)


def opening(slot: int, *known: int, sampling: Sampling = GREEDY) -> Opening:
    return Opening(slot, sampling, ids(*known), len(known))


def work(slot: int, start: int, tokens: "array[int]", *table: int, sample: bool = True) -> Work:
    return Work(slot, start, tokens, (ids(*table),), sample)


def run(runner: FakeRunner, batch: Batch) -> list[Sampled | None]:
    runner.submit(batch)
    return runner.collect().sampled


def fake() -> FakeRunner:
    return FakeRunner(default_info(block_size=2, blocks=8, slots=4))


def test_chunks_tables_and_neighbours_do_not_matter() -> None:
    [whole] = run(fake(), Batch([work(0, 0, ids(5, 6, 7), 0, 1)], [opening(0, 5, 6, 7)]))
    runner = fake()
    run(runner, Batch([work(2, 0, ids(5), 7, sample=False)], [opening(2, 5, 6, 7)]))
    chunked = run(runner, Batch([work(1, 0, ids(9), 3), work(2, 1, ids(6, 7), 7, 2)], [opening(1, 9)]))[1]
    assert whole == chunked


def test_seed_matters_unless_greedy() -> None:
    def draw(**changes: Any) -> Sampled | None:
        sampling = make_request(1, [5], **changes).sampling
        return run(fake(), Batch([work(0, 0, ids(5), 0)], [opening(0, 5, sampling=sampling)]))[0]

    assert draw(seed=1) != draw(seed=2) and draw(seed=1, choice=1) != draw(seed=1)
    assert draw(seed=1, temperature=0.0) == draw(seed=2, temperature=0.0)


FIRST = Batch([work(0, 0, ids(5, 6, 7), 0, 1, sample=False)], [opening(0, 5, 6, 7, 8)])


@pytest.mark.parametrize(
    "second",
    [
        Batch([work(0, 3, ids(8), 2, 1)]),  # an unwritten block
        Batch([work(0, 3, ids(8), 1, 0)]),  # the blocks of another order
        Batch([work(0, 3, ids(8), 0)]),  # a table too short
        Batch([work(0, 3, ids(8), 0, 99)]),  # out of range
        Batch([work(0, 2, ids(8), 0, 1)]),  # not these tokens
        Batch([work(1, 0, ids(5), 3)]),  # a slot without an opening
        Batch([work(0, 3, ids(8), 0, 1), work(1, 0, ids(5), 1)], [opening(1, 5)]),  # two writers
        Batch([work(0, 3, ids(8), 0, 1), work(1, 2, ids(9), 0, 2)], [opening(1, 5, 5, 9)]),  # foreign context
        Batch([work(0, 3, ids(8), 0, 1), work(1, 2, ids(7), 1, 2)], [opening(1, 5, 6, 7)]),  # read while written
    ],
)
def test_faults_are_caught(second: Batch) -> None:
    runner = fake()
    run(runner, FIRST)
    good = run(runner, Batch([work(0, 3, ids(8), 0, 1)]))
    assert good[0] is not None
    runner = fake()
    run(runner, FIRST)
    try:
        outcome = run(runner, second)
    except (AssertionError, IndexError):
        return
    alone = run(fake(), Batch([work(1, 0, ids(5, 5, 9), 0, 1)], [opening(1, 5, 5, 9)]))
    assert outcome[1] != alone[0], "a foreign context must change the token"


def test_masks_ends_before_min_tokens() -> None:
    runner = FakeRunner(default_info(block_size=2, blocks=8), end_probability=1.0)
    sampling = Sampling(max_tokens=9, min_tokens=1)
    [first] = run(runner, Batch([work(0, 0, ids(5), 0)], [opening(0, 5, sampling=sampling)]))
    assert first is not None and first.token != 2
    [second] = run(runner, Batch([work(0, 1, ids(first.token), 0)]))
    assert second is not None and second.token == 2


def test_tokens_stay_in_their_range() -> None:
    runner = FakeRunner(default_info(), tokens=(100, 103))
    seen = set()
    for seed in range(60):
        [drawn] = run(
            runner, Batch([work(0, 0, ids(5), 0)], [opening(0, 5, sampling=make_request(seed, [5]).sampling)])
        )
        assert drawn is not None
        seen.add(drawn.token)
    assert seen == {100, 101, 102, 103}


def test_time_is_programmable() -> None:
    clock = ManualClock()
    run(FakeRunner(default_info(), clock=clock, step_time=lambda batch: 3.0), FIRST)
    assert clock.now() == 3.0
    begin = time.monotonic()
    run(FakeRunner(default_info(), clock=MonotonicClock(), step_time=lambda batch: 0.05), FIRST)
    assert time.monotonic() - begin >= 0.05
