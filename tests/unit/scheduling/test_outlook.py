"""What a newcomer would meet, from costs that are known."""

from typing import Any

import pytest
from msgspec import structs

from headway.core.config import PromiseSettings
from headway.core.events import Outlook, Share
from headway.core.lane import Lane
from headway.scheduling.cost_model import CostModel, StepLoad, attended
from headway.scheduling.outlook import (
    GRACE,
    TYPICAL_CHUNK_START,
    UNKNOWN_END_S,
    Newcomer,
    Standing,
    find_share,
    look,
    queue_wait_s,
    unloaded_s,
    wait_needed,
)
from headway.scheduling.pace import LEAST_CHUNK, MARGIN

COSTS = CostModel((4e-3, 6e-4, 3e-5, 8e-4))
PROMISE = PromiseSettings(ttft_ms=500.0, itl_ms=50.0)


def outlook(streams: int, backlog: int = 0, context: int = 200, **standing: Any) -> Outlook:
    """`backlog`: short prompts of the default lane."""
    fields = {
        "long_keys": [0, 0, 0],
        "capacity": 256,
        "short": [0, backlog, 0],
        "long": [0, 0, 0],
        "ends_per_s": 4.0,
    } | standing
    return look(COSTS, PROMISE, 512, MARGIN, 0.5, Standing(streams=streams, context=streams * context, **fields))


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


def test_seats_end_at_capacity_and_at_the_room_for_kv() -> None:
    assert outlook(8, capacity=10).seats == 2
    assert outlook(8, kv_seats=1).seats == 1
    assert outlook(8, kv_seats=0).seats == outlook(12, capacity=10).seats == 0


def test_a_lane_waits_for_those_before_it_and_not_for_those_after() -> None:
    waits = outlook(4, short=[100, 200, 400]).waits_s
    assert waits == pytest.approx([100 * outlook(4).token_s, 300 * outlook(4).token_s, 700 * outlook(4).token_s])
    assert wait_needed(outlook(4, short=[0, 0, 10**6]), PROMISE, Newcomer(100, 0.0)) == 0.0
    busy = outlook(4, short=[0, 10**5, 0])
    assert wait_needed(busy, PROMISE, Newcomer(100, 0.0, lane=Lane.PRIORITY)) == 0.0
    assert wait_needed(busy, PROMISE, Newcomer(100, 0.0)) > 1.0


def test_long_prompts_take_their_share_and_no_more() -> None:
    def keys(tokens: int) -> list[int]:  # at the position that is taken for typical
        return [0, tokens * TYPICAL_CHUNK_START, 0]

    plain = outlook(4, backlog=1000)
    beside = outlook(4, backlog=1000, long=[0, 50_000, 0], long_keys=keys(50_000))
    assert beside.slow == 2.0 and plain.slow == 1.0
    assert beside.waits_s[Lane.DEFAULT] == pytest.approx(2 * plain.waits_s[Lane.DEFAULT])
    assert beside.long_waits_s[Lane.DEFAULT] == pytest.approx(51 * plain.waits_s[Lane.DEFAULT])
    few = outlook(
        4, backlog=1000, long=[0, 10, 0], long_keys=keys(10)
    )  # nearly done: they cannot double anybody's wait
    assert few.waits_s[Lane.DEFAULT] == pytest.approx(1.01 * plain.waits_s[Lane.DEFAULT])


def test_flex_is_promised_nothing_but_deadlines_hold_for_all() -> None:
    full = outlook(80, short=[10**5, 0, 0])
    assert wait_needed(full, PROMISE, Newcomer(100, 0.0, lane=Lane.FLEX)) == 0.0
    for lane in Lane:
        assert wait_needed(full, PROMISE, Newcomer(100, 0.0, lane=lane, left_s=1.0)) > 1.0


def test_a_booked_one_finds_seats_that_others_do_not() -> None:
    full = structs.replace(outlook(10), seats=0, last_seats=5)
    assert wait_needed(full, PROMISE, Newcomer(10, 0.0)) == 0.25
    assert wait_needed(full, PROMISE, Newcomer(10, 0.0, booked=True)) == 0.0
    assert wait_needed(full, PROMISE, Newcomer(10, 0.0, booked=True, unseen=GRACE - 1)) == 0.0
    assert wait_needed(full, PROMISE, Newcomer(10, 0.0, booked=True, unseen=GRACE)) > 0.0
    none = structs.replace(full, last_seats=0)
    assert wait_needed(none, PROMISE, Newcomer(10, 0.0, booked=True)) == 0.25
    plenty = structs.replace(full, seats=4, last_seats=4)
    assert wait_needed(plenty, PROMISE, Newcomer(10, 0.0, booked=True, unseen=4)) > 0.0


def test_the_last_seats_leave_prompts_the_least_and_use_the_whole_gap() -> None:
    """Others leave room for a piece of a usual prompt, so that it makes it in time."""

    def step(total: int) -> float:
        return COSTS.predict(StepLoad(total + LEAST_CHUNK, total * 200 + attended(256, LEAST_CHUNK), total))

    for streams in (1, 8, 20):
        look = outlook(streams)
        assert look.seats <= look.last_seats
        assert step(streams + look.last_seats) <= 0.05 < step(streams + look.last_seats + 2)
    assert outlook(8, prompt=400.0).seats < outlook(8, prompt=50.0).seats


def test_who_is_modest_has_the_promise_to_its_letter() -> None:
    """ttft_ms plus twice its own unloaded time; for others the greater of the two."""
    late = structs.replace(outlook(2), waits_s=[0.0, 0.4, 0.4], last_seats=9)
    shares = [Share(lane=1, tenant=name, modest=name == "modest", seats=9, wait_s=0.4) for name in ("modest", "big")]
    late = structs.replace(late, shares=shares)
    assert wait_needed(late, PROMISE, Newcomer(100, 0.0, tenant="modest")) == 0.0
    assert wait_needed(late, PROMISE, Newcomer(100, 0.0, tenant="big")) > 0.0


def test_a_tenant_meets_its_own_share() -> None:
    shares = [
        Share(lane=1, tenant="big", modest=False, seats=0, wait_s=9.0),
        Share(lane=1, tenant="small", modest=True, seats=5, wait_s=0.0),
    ]
    seen = structs.replace(outlook(10, backlog=10**4), shares=shares)
    assert find_share(seen, Lane.DEFAULT, "big") is shares[0]
    assert find_share(seen, Lane.PRIORITY, "big") is None
    assert wait_needed(seen, PROMISE, Newcomer(10, 0.0, tenant="small")) == 0.0
    assert wait_needed(seen, PROMISE, Newcomer(10, 0.0, tenant="big")) > 0.0
    assert wait_needed(seen, PROMISE, Newcomer(10, 0.0, tenant="other")) > 0.0  # of a long queue


def test_the_least_time_is_that_of_an_idle_server() -> None:
    idle = outlook(0)
    steps = [COSTS.predict(StepLoad(512, attended(start, 512), 1)) for start in (0, 512)]
    assert unloaded_s(idle, 1024, 10) == pytest.approx(sum(steps) + 10 * COSTS.predict(StepLoad(1, 1, 1)), rel=1e-3)
    assert unloaded_s(idle, 1024, 0) == unloaded_s(idle, 1024, 1)
    assert unloaded_s(outlook(50, backlog=10**5), 1024, 10) == unloaded_s(idle, 1024, 10)


def test_who_waits_for_a_seat_waits_for_tokens_and_for_ends() -> None:
    assert queue_wait_s(outlook(0), Lane.DEFAULT, 0) == 0.0
    busy = outlook(4, backlog=1000)
    assert queue_wait_s(busy, Lane.DEFAULT, 0) == busy.waits_s[Lane.DEFAULT] > 0.5
    assert queue_wait_s(busy, Lane.DEFAULT, 20) == pytest.approx(20 / 4.0)
    assert queue_wait_s(outlook(4, ends_per_s=None), Lane.DEFAULT, 3) == 3 * UNKNOWN_END_S
