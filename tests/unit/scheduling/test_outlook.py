"""What a newcomer would meet, from costs that are known."""

import pytest

from headway.core.config import PromiseSettings
from headway.core.events import Outlook
from headway.scheduling.cost_model import CostModel, StepLoad, attended
from headway.scheduling.outlook import Newcomer, Standing, look, wait_needed
from headway.scheduling.pace import LEAST_CHUNK, MARGIN

COSTS = CostModel((4e-3, 6e-4, 3e-5, 2e-4))
PROMISE = PromiseSettings(ttft_ms=500.0, itl_ms=50.0)


def outlook(streams: int, backlog: int = 0, context: int = 200, ends_per_s: float | None = 4.0) -> Outlook:
    return look(COSTS, PROMISE, 512, Standing(streams, 256, streams * context, backlog, ends_per_s))


@pytest.mark.parametrize("streams", [1, 8, 20])
def test_seats_are_the_streams_that_still_fit_the_gap(streams: int) -> None:
    seats = outlook(streams).seats

    def step(total: int) -> float:
        return COSTS.predict(StepLoad(total + LEAST_CHUNK, total * 200 + attended(256, LEAST_CHUNK), total))

    assert step(streams + seats) <= MARGIN * 0.05 < step(streams + seats + 2)


def test_more_streams_mean_fewer_seats_and_slower_prompts() -> None:
    looks = [outlook(n, backlog=1000) for n in (0, 5, 10, 20, 40, 80)]
    assert [o.seats for o in looks] == sorted((o.seats for o in looks), reverse=True)
    assert looks[-1].seats == 0
    assert [o.token_s for o in looks] == sorted(o.token_s for o in looks)
    assert all(o.token_s >= o.unloaded_token_s * 0.9 for o in looks)


def test_an_idle_server_takes_anybody_and_a_full_one_says_when() -> None:
    assert wait_needed(outlook(0), PROMISE, Newcomer(tokens=150, waited_s=0.0)) == 0.0
    assert wait_needed(outlook(0), PROMISE, Newcomer(tokens=6000, waited_s=0.0)) == 0.0
    # (the second one's own prefill is allowed for)
    full = wait_needed(outlook(80), PROMISE, Newcomer(tokens=150, waited_s=0.0))
    assert full >= 0.25  # the time until a stream ends
    assert wait_needed(outlook(2, backlog=5000), PROMISE, Newcomer(tokens=150, waited_s=0.0)) > 1.0


def test_what_is_on_the_way_and_what_has_waited_count() -> None:
    seats = outlook(10).seats
    assert wait_needed(outlook(10), PROMISE, Newcomer(100, 0.0, unseen=seats - 1)) == 0.0
    assert wait_needed(outlook(10), PROMISE, Newcomer(100, 0.0, unseen=seats)) > 0.0
    assert wait_needed(outlook(10), PROMISE, Newcomer(100, 0.0, unseen=1, unseen_tokens=5000)) > 0.0
    assert wait_needed(outlook(10), PROMISE, Newcomer(100, waited_s=0.6)) > 0.0


def test_nothing_is_refused_where_nothing_is_promised() -> None:
    free = PromiseSettings(ttft_ms=0.0)
    assert wait_needed(outlook(200, backlog=10**6), free, Newcomer(10**5, 100.0)) == 0.0
