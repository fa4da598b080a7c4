import pytest

from headway.core.config import QueueSettings
from headway.scheduling.admission import Admission, Demand, Rate


def admission(requests: int = 2, tokens: int = 100) -> Admission:
    return Admission(QueueSettings(max_requests=requests, max_tokens=tokens))


def test_rate_forgets_and_ignores_idle_time() -> None:
    rate = Rate()
    assert rate.per_second is None
    for _ in range(100):
        rate.record(10, 0.1)
    assert rate.per_second == pytest.approx(100)
    for _ in range(1000):
        rate.record(30, 0.1)
    assert rate.per_second == pytest.approx(300, rel=0.01)


@pytest.mark.parametrize(("waiting", "room", "refused"), [(0, 0, False), (1, 0, False), (2, 0, True), (4, 3, False)])
def test_count_bound_is_of_those_that_must_wait(waiting: int, room: int, refused: bool) -> None:
    assert (admission().problem(Demand(waiting, 0, room), 1) is not None) == refused


def test_no_queue_at_all_still_serves() -> None:
    assert admission(requests=0).problem(Demand(0, 0, 1), 1) is None
    assert admission(requests=0).problem(Demand(0, 0, 0), 1) is not None


def test_token_bound() -> None:
    assert admission().problem(Demand(1, 60, 5), 40) is None
    assert admission().problem(Demand(1, 61, 5), 40) is not None
    assert admission().problem(Demand(0, 0, 1), 101) is None  # next, and has a seat
    assert admission().problem(Demand(0, 0, 0), 101) is not None


def test_predicted_wait() -> None:
    made = admission()
    assert made.predicted_wait_s(Demand(0, 0, 3), 500) == 0.0
    assert made.predicted_wait_s(Demand(0, 0, 0), 500) == 1.0  # nothing is known yet
    made.record(tokens=100, finishes=2, seconds=1.0)
    assert made.predicted_wait_s(Demand(1, 50, 3), 500) == pytest.approx(5.0)
    assert made.predicted_wait_s(Demand(19, 50, 0), 500) == pytest.approx(10.0)
    assert made.retry_after_s(Demand(10_000, 50, 0), 500) == 60.0
    assert made.retry_after_s(Demand(0, 0, 3), 0) > 0.0
