"""When a failing server is left alone, and when it is asked again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.breaker import Admission, CircuitBreaker
from headway.core.clock import ManualClock


def admitted(breaker: CircuitBreaker) -> Admission:
    admission = breaker.admit()
    assert admission is not None
    return admission


def opened(failures: int = 3) -> tuple[ManualClock, CircuitBreaker]:
    clock = ManualClock()
    breaker = CircuitBreaker(clock, failures, open_s=5.0)
    for _ in range(failures):
        admitted(breaker).failed()
    return clock, breaker


def test_failures_in_a_row_open_it_and_time_lets_one_probe_through() -> None:
    clock, breaker = opened()
    assert (breaker.state, breaker.retry_after, breaker.admit()) == ("open", 5.0, None)
    clock.advance(4.0)
    assert (breaker.state, breaker.retry_after, breaker.admit()) == ("open", 1.0, None)
    clock.advance(1.0)
    assert (breaker.state, breaker.retry_after) == ("half_open", 0.0)
    probe = admitted(breaker)
    assert breaker.admit() is None and breaker.state == "half_open" and breaker.retry_after == 5.0
    probe.succeeded()
    assert breaker.state == "closed" and breaker.retry_after == 0.0


def test_a_failed_probe_opens_it_again() -> None:
    clock, breaker = opened()
    clock.advance(5.0)
    admitted(breaker).failed()
    assert breaker.state == "open" and breaker.retry_after == 5.0


def test_a_probe_that_was_given_up_makes_room_for_another() -> None:
    clock, breaker = opened()
    clock.advance(5.0)
    admitted(breaker).abandoned()
    admitted(breaker).succeeded()
    assert breaker.state == "closed"


def test_only_the_probe_counts_once_it_is_open() -> None:
    clock = ManualClock()
    breaker = CircuitBreaker(clock, failures=1, open_s=5.0)
    early, late, first = admitted(breaker), admitted(breaker), admitted(breaker)
    first.failed()
    early.succeeded()
    assert breaker.state == "open"
    clock.advance(5.0)
    probe = admitted(breaker)
    late.abandoned()
    assert breaker.admit() is None  # the probe's place is still taken
    probe.succeeded()
    assert breaker.state == "closed"


@given(st.lists(st.sampled_from(["failed", "succeeded", "abandoned"])), st.integers(1, 4))
def test_it_opens_after_so_many_failures_in_a_row(outcomes: list[str], failures: int) -> None:
    breaker = CircuitBreaker(ManualClock(), failures)
    row = 0
    for outcome in outcomes:
        getattr(admitted(breaker), outcome)()
        row = row + 1 if outcome == "failed" else 0 if outcome == "succeeded" else row
        assert (breaker.state == "open") == (row == failures)
        if row == failures:
            return


@pytest.mark.parametrize(("failures", "open_s"), [(0, 1.0), (1, 0.0), (1, -1.0)])
def test_senseless_bounds_are_refused(failures: int, open_s: float) -> None:
    with pytest.raises(ValueError, match="at least 1 failure"):
        CircuitBreaker(ManualClock(), failures, open_s)
