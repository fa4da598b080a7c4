import random

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


def test_the_usual_prompt_is_what_nine_of_ten_do_not_exceed() -> None:
    made, chance = admission(), random.Random(1)
    for _ in range(2000):
        made.saw_prompt(chance.randint(0, 1000))
    usual = made.usual_prompt
    assert 700 < usual < 1000
    made.saw_prompt(10**6)  # a wild one moves it no more than another
    assert made.usual_prompt - usual < 0.1 * usual


def test_caution_is_how_late_nearly_all_have_come_within_bounds() -> None:
    made, chance = admission(), random.Random(2)
    for _ in range(5000):
        made.saw_first_token(1.0, chance.uniform(0.5, 1.0))
        made.saw_first_token(0.1, 9.0)  # too short to tell anything
    assert 0.9 < made.caution < 1.0
    for _ in range(5000):
        made.saw_first_token(1.0, 9.0)
    assert made.caution == 1.5
