"""What the gate says of time: the promise, deadlines, and those who come back when they were told to."""

from dataclasses import replace

import pytest
from gate_rig import NOW, OUTLOOK, ask, make, show
from msgspec import structs

from headway.core.clock import ManualClock
from headway.core.config import Settings
from headway.core.errors import Overloaded, PromiseImpossible
from headway.core.events import Outlook, Share
from headway.serving.bookings import PATIENCE_S
from headway.serving.engine_link import EngineLink
from headway.serving.gate import Gate
from headway.serving.request import Request

BUSY = structs.replace(OUTLOOK, waits_s=[0.0, 2.0, 5.0], long_waits_s=[0.0, 9.0, 9.0])


def seats(count: int) -> Outlook:
    return structs.replace(OUTLOOK, seats=count, last_seats=count + 3)


def promising(outlook: Outlook) -> tuple[Gate, EngineLink, ManualClock]:
    return make({"default": (0, 5, 0), "outlook": outlook}, 100, promise={"ttft_ms": 500.0})


def unpromising(outlook: Outlook) -> tuple[Gate, EngineLink, ManualClock]:
    return make({"default": (0, 5, 0), "outlook": outlook}, 100)


def now(request: Request, clock: ManualClock) -> Request:
    """It comes (again) now."""
    return replace(request, arrival=clock.now())


def wait_of(gate: Gate, request: Request) -> float:
    """Seconds it is told to wait; 0: it is let in, and forgotten again."""
    try:
        gate.release(gate.admit(request))
    except Overloaded as refusal:
        return refusal.retry_after_s
    return 0.0


@pytest.mark.parametrize(("lane", "wait"), [("priority", 0.0), ("default", 2.0), ("flex", 5.0)])
def test_a_deadline_that_cannot_be_kept_now_is_refused_with_the_wait(lane: str, wait: float) -> None:
    gate, _, _ = unpromising(BUSY)
    assert wait_of(gate, ask(10, lane)) == 0.0
    assert wait_of(gate, ask(10, lane, deadline=NOW + 8.0)) == 0.0
    told = wait_of(gate, ask(10, lane, deadline=NOW + 1.0))
    assert told == pytest.approx(max(0.0, 1.05 * (wait + 0.07) - 1.0)) and (told > 0.0) == (lane != "priority")


def test_a_long_prompt_waits_for_the_long_ones() -> None:
    gate, _, _ = unpromising(BUSY)
    assert wait_of(gate, ask(2048, deadline=NOW + 8.0)) == 0.0
    assert wait_of(gate, ask(2049, deadline=NOW + 8.0)) > 3.0


def test_time_that_has_passed_since_the_arrival_counts() -> None:
    gate, _, clock = promising(structs.replace(OUTLOOK, waits_s=[0.0, 0.3, 0.3]))
    assert wait_of(gate, ask(10)) == 0.0
    clock.advance(0.2)
    assert wait_of(gate, ask(10)) > 0.0
    assert wait_of(gate, ask(10, arrival=NOW + 0.2)) == 0.0


@pytest.mark.parametrize(("tokens", "output", "possible"), [(100, 5, True), (100, 6, False), (101, 5, False)])
def test_what_no_waiting_makes_possible_is_said_to_be_so(tokens: int, output: int, possible: bool) -> None:
    """100 tokens of 0.5 ms and 5 steps of 10 ms, on an idle server."""
    gate, _, clock = promising(BUSY)
    clock.advance(3.0)  # time spent before does not make it impossible: it could be sent again
    request = ask(1, deadline=NOW + 0.1 + 1e-9)
    if possible:
        gate.check_possible(request, tokens, output)
    else:
        with pytest.raises(PromiseImpossible, match="idle server") as caught:
            gate.check_possible(request, tokens, output)
        assert caught.value.code == "promise_impossible" and caught.value.param == "timeout"
    gate.check_possible(ask(1), 10**6, 10**6)  # no deadline, nothing impossible


def test_who_comes_back_as_told_is_let_in_though_others_are_not() -> None:
    gate, link, clock = promising(seats(0))
    refused = [ask(10) for _ in range(6)]
    waits = [wait_of(gate, request) for request in refused]
    assert waits == sorted(waits) and waits[0] > 0.0
    clock.advance(waits[0])
    show(link, default=(0, 5, 0), outlook=seats(0))
    assert wait_of(gate, now(ask(10), clock)) > 0.0
    assert wait_of(gate, now(refused[1], clock)) == pytest.approx(waits[1] - waits[0])  # not yet
    gate.admit(now(refused[0], clock))
    assert wait_of(gate, now(refused[0], clock)) > 0.0  # a copy of it was not told to come
    clock.advance(waits[1] - waits[0])
    show(link, default=(0, 5, 0), outlook=seats(1))
    assert wait_of(gate, now(ask(10), clock)) > 0.0  # the one free seat is for him who was told
    assert gate.admit(now(refused[1], clock)).booked


def test_another_tenant_with_the_same_prompt_is_another() -> None:
    gate, link, clock = promising(seats(0))
    mine = ask(10, tenant="a")
    clock.advance(wait_of(gate, mine))
    show(link, default=(0, 5, 0), outlook=seats(0))
    assert wait_of(gate, now(replace(mine, tenant="b"), clock)) > 0.0
    assert wait_of(gate, now(mine, clock)) == 0.0


def test_seats_of_those_who_never_come_back_are_not_kept() -> None:
    gate, link, clock = promising(seats(0))
    for _ in range(100):
        clock.advance(wait_of(gate, now(ask(10), clock)) + PATIENCE_S + 0.1)
        show(link, default=(0, 5, 0), outlook=seats(0))
    waits = [wait_of(gate, now(ask(10), clock)) for _ in range(8)]
    clock.advance(waits[-1])
    show(link, default=(0, 5, 0), outlook=seats(1))
    assert wait_of(gate, now(ask(10), clock)) == 0.0


def test_bookings_that_are_not_honoured_end() -> None:
    gate, link, clock = promising(seats(0))
    waits = [wait_of(gate, now(ask(10), clock)) for _ in range(8)]
    clock.advance(waits[-1] + PATIENCE_S + 0.1)
    show(link, default=(0, 5, 0), outlook=seats(1))
    assert wait_of(gate, now(ask(10), clock)) == 0.0


def test_each_tenant_meets_its_own_share_and_a_new_one_is_left_to_the_engine() -> None:
    shares = [
        Share(lane=1, tenant="big", modest=False, seats=0, wait_s=9.0),
        Share(lane=1, tenant="small", modest=True, seats=2, wait_s=0.0),
    ]
    gate, _, _ = promising(structs.replace(OUTLOOK, seats=0, shares=shares))
    assert wait_of(gate, ask(10, tenant="big")) > 0.0
    assert wait_of(gate, ask(10, tenant="small")) == 0.0
    assert wait_of(gate, ask(10, tenant="new")) == 0.0


def test_new_settings_hold_from_the_next_request_on() -> None:
    gate, link, _ = unpromising(BUSY)
    assert wait_of(gate, ask(10)) == 0.0
    gate.reconfigure(Settings(promise={"ttft_ms": 500.0}))  # type: ignore[arg-type]
    assert wait_of(gate, ask(10)) > 0.0
    gate.reconfigure(Settings(queue={"max_requests": 3}, lanes={"long_prompt_tokens": 5}))  # type: ignore[arg-type]
    assert wait_of(gate, ask(10)) == 0.0
    assert wait_of(gate, ask(10, deadline=NOW + 8.0)) > 0.0  # now a long one
    show(link, default=(98, 5, 0))
    assert wait_of(gate, ask(10)) > 0.0
