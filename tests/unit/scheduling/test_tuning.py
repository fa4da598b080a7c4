"""What self-tuning makes of what it sees. Whole runs are in tests/simulation."""

from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from headway.core.config import PromiseSettings, TuningSettings
from headway.scheduling.cost_model import CostModel
from headway.scheduling.pace import LEAST_CHUNK, MARGIN, Pace
from headway.scheduling.policy import ContinuousPolicy
from headway.scheduling.tuning import ENOUGH, HIGHEST, LOWEST, REMEMBERED, WINDOW, Tuner

GAP = 0.05
MOST = 64


class Bench:
    """A tuner and what it turns."""

    def __init__(self, itl_ms: float = 50.0, **settings: Any) -> None:
        promise = PromiseSettings(itl_ms=itl_ms)
        self.policy = ContinuousPolicy(MOST)
        self.pace = Pace(CostModel(), promise.itl_s)
        self.tuner = Tuner(TuningSettings(**settings), promise, self.policy, self.pace, MOST)

    @property
    def limit(self) -> int:
        """What the policy has of it."""
        assert self.policy.room(0) == self.tuner.limit
        return self.tuner.limit

    def see(self, gap: float, streams: int = 20, prompt: int = 0, count: int = WINDOW) -> None:
        for step in range(count):
            self.tuner.observe(float(step), gap, streams, prompt)


def test_too_long_a_gap_means_fewer_streams_in_proportion() -> None:
    bench = Bench()
    bench.see(2 * GAP, streams=40)
    assert (bench.limit, bench.pace.margin) == (20, MARGIN)
    bench.see(1.01 * GAP, streams=20)
    assert bench.limit == 18
    bench.see(1.01 * GAP, streams=3)
    assert bench.limit == 4  # tuning.min_sequences
    assert Bench(min_sequences=100).limit == MOST


def test_room_while_the_limit_is_reached_means_more() -> None:
    bench = Bench()
    bench.see(2 * GAP, streams=40)
    bench.see(0.5 * GAP, streams=20)
    assert bench.limit == 22
    bench.see(0.5 * GAP, streams=21)  # there are seats
    bench.see(0.9 * GAP, streams=22)  # no room
    assert bench.limit == 22
    for _ in range(30):
        bench.see(0.5 * GAP, streams=MOST)
    assert bench.limit == MOST


def test_steps_that_prompts_fill_say_nothing_of_the_streams() -> None:
    """They are as long as they are planned: neither too many streams, nor a reason to let in no more."""
    bench = Bench()
    bench.see(1.1 * GAP, streams=8, prompt=40)
    assert bench.limit == MOST
    bench.see(1.1 * GAP, streams=8, prompt=LEAST_CHUNK)  # with the least of a prompt they do
    assert bench.limit == 7
    bench.see(0.95 * GAP, streams=8, prompt=40, count=WINDOW - ENOUGH)
    bench.see(0.2 * GAP, streams=8, count=ENOUGH)
    assert bench.limit == 8


def test_late_steps_with_prompts_in_them_mean_smaller_pieces() -> None:
    bench = Bench()
    for _ in range(2):
        bench.see(0.5 * GAP, prompt=30, count=WINDOW - 5)
        bench.see(1.3 * GAP, prompt=30, count=5)
    assert bench.pace.margin == pytest.approx(MARGIN * 0.81) and bench.limit == MOST
    bench.see(0.7 * GAP, prompt=30)
    assert MARGIN * 0.81 < bench.pace.margin < MARGIN
    margin = bench.pace.margin
    bench.see(0.7 * GAP)  # nothing to be learned of pieces where there were none
    assert bench.pace.margin == margin
    for _ in range(100):
        bench.see(0.7 * GAP, prompt=30)
    assert bench.pace.margin == HIGHEST


def test_late_steps_without_prompts_are_no_reason_for_smaller_pieces() -> None:
    bench = Bench()
    bench.see(0.9 * GAP, streams=30, count=WINDOW - 5)
    bench.see(1.3 * GAP, streams=30, count=5)
    assert (bench.limit, bench.pace.margin) == (MOST, MARGIN)


def test_one_stalled_step_changes_nothing() -> None:
    bench = Bench()
    bench.see(0.5 * GAP, prompt=30, count=WINDOW - 1)
    bench.see(3 * GAP, prompt=30, count=1)
    assert (bench.limit, bench.pace.margin, list(bench.tuner.decisions)) == (MOST, MARGIN, [])


def test_steps_that_nobody_waits_for_are_not_seen() -> None:
    bench = Bench()
    bench.see(9 * GAP, streams=0, count=10 * WINDOW)
    assert not bench.tuner.decisions


def test_decisions_are_recorded_with_their_reasons_and_bounded() -> None:
    bench = Bench()
    bench.see(2 * GAP, streams=40)
    [decision] = bench.tuner.decisions
    assert (decision.what, decision.old, decision.new, decision.time) == ("batch_limit", 64, 20, WINDOW - 1)
    assert decision.why == "mean gap 100.0 of 50 ms without prompts, 100% late, 40 streams"
    assert (bench.tuner.ups, bench.tuner.downs) == (0, 1)
    for _ in range(REMEMBERED):
        bench.see(2 * GAP, streams=40)
        bench.see(0.5 * GAP, streams=bench.limit)
    assert len(bench.tuner.decisions) == REMEMBERED
    assert bench.tuner.ups + bench.tuner.downs > REMEMBERED


@pytest.mark.parametrize("bench", [Bench(enabled=False), Bench(itl_ms=0.0)], ids=["disabled", "nothing promised"])
def test_constant_where_there_is_nothing_to_tune(bench: Bench) -> None:
    for gap in (0.001, 5.0):
        bench.see(gap, streams=MOST, prompt=30)
    assert (bench.limit, bench.pace.margin, bench.pace.least) == (MOST, MARGIN, LEAST_CHUNK)
    assert not bench.tuner.decisions


def test_another_promise_or_none_begins_anew() -> None:
    bench = Bench()
    kept = PromiseSettings(itl_ms=50.0, ttft_ms=9.0)
    for promise, limit in ((kept, 20), (PromiseSettings(itl_ms=70.0), MOST), (PromiseSettings(itl_ms=0.0), MOST)):
        bench.see(2 * GAP, streams=40)
        policy = ContinuousPolicy(MOST)
        bench.tuner.reconfigure(TuningSettings(min_chunk_tokens=9), promise, policy)
        assert policy.room(0) == limit, promise  # also a policy that has just been made
        assert bench.pace.least == 9 and bench.pace.gap_s == promise.itl_s
        bench.policy = policy
    bench.tuner.reconfigure(TuningSettings(enabled=False), PromiseSettings(itl_ms=50.0), bench.policy)
    assert bench.pace.least == LEAST_CHUNK


@given(
    st.lists(st.tuples(st.floats(1e-4, 1.0), st.integers(1, 200), st.integers(0, 99)), max_size=40),
    st.integers(1, 100),
)
def test_whatever_is_seen_all_stays_within_bounds(windows: list[tuple[float, int, int]], least: int) -> None:
    bench = Bench(min_sequences=least)
    for gap, streams, prompt in windows:
        bench.see(gap, streams, prompt)
        assert min(least, MOST) <= bench.limit <= MOST
        assert LOWEST <= bench.pace.margin <= HIGHEST
