from itertools import pairwise
from typing import Any

import pytest
from gate_rig import OUTLOOK, ask, make, show

from headway.core.errors import EngineUnavailable, Overloaded


def test_refuses_before_the_engine_is_ready_and_after_its_last_heartbeat() -> None:
    gate, _, _ = make()
    with pytest.raises(EngineUnavailable, match="loading"):
        gate.admit(ask(1))
    gate, _, clock = make({})
    gate.admit(ask(1))
    clock.advance(11)
    with pytest.raises(EngineUnavailable, match="sign of life"):
        gate.admit(ask(1))


def test_draining() -> None:
    gate, _, _ = make({})
    gate.draining = True
    with pytest.raises(EngineUnavailable) as caught:
        gate.admit(ask(1))
    assert caught.value.code == "shutting_down" and caught.value.retry_after_s >= 1


def test_counts_what_the_load_does_not_show_yet() -> None:
    gate, link, _ = make({}, queue={"max_requests": 3})
    tickets = [gate.admit(ask(1)) for _ in range(5)]  # two find a seat, three wait
    with pytest.raises(Overloaded) as caught:
        gate.admit(ask(1))
    assert caught.value.retry_after_s == 0.5
    for serial, ticket in enumerate(tickets, 1):
        gate.sent(ticket, serial, 1)
    show(link, default=(1, 2, 1))
    gate.reflect(3)  # the load shows three of them; two are on the way
    with pytest.raises(Overloaded):
        gate.admit(ask(1))
        gate.admit(ask(1))
    gate.reflect(5)
    show(link, default=(2, 2, 2))
    gate.admit(ask(1))
    with pytest.raises(Overloaded):
        gate.admit(ask(1))


def test_a_request_that_is_never_sent_gives_its_place_back() -> None:
    gate, _, _ = make({"default": (0, 2, 0)}, queue={"max_requests": 1})
    ticket = gate.admit(ask(1))
    with pytest.raises(Overloaded):
        gate.admit(ask(1))
    gate.release(ticket)
    gate.release(ticket)
    gate.admit(ask(1))
    with pytest.raises(Overloaded):
        gate.admit(ask(1))


def test_tokens() -> None:
    gate, _, _ = make({"default": (0, 2, 0)}, queue={"max_tokens": 100})
    gate.sent(gate.admit(ask(10)), 1, 60)  # the estimate was low
    gate.admit(ask(40))
    with pytest.raises(Overloaded, match="tokens"):
        gate.admit(ask(1))


def test_a_request_that_has_a_seat_is_taken_whatever_its_length() -> None:
    gate, _, _ = make({}, queue={"max_tokens": 10, "max_requests": 0})
    gate.admit(ask(1000))


@pytest.mark.parametrize("bounds", [{"max_requests": 20}, {"max_tokens": 1000}])
@pytest.mark.parametrize("seen", [False, True])
def test_a_flood_of_one_lane_fills_its_own_queue_and_those_behind_it(bounds: dict[str, Any], seen: bool) -> None:
    """Whether the engine's load shows the flood or it is still on the way."""
    gate, link, _ = make({"priority": (0, 2, 0)}, queue=bounds)

    def flood(lane: str) -> None:
        count = 0
        with pytest.raises(Overloaded):
            while True:
                count += 1
                gate.sent(gate.admit(ask(50, lane)), count, 50)
        assert count == 21
        if seen:
            show(link, priority=(0, 2, 0), **{lane: (20, 0, 1000)})
            gate.reflect(20)

    flood("flex")
    gate.release(gate.admit(ask(50, "default")))
    gate.release(gate.admit(ask(50, "priority")))
    flood("default")
    gate.admit(ask(50, "priority"))
    with pytest.raises(Overloaded):
        gate.admit(ask(50, "flex"))


def test_flex_that_runs_takes_no_seat_from_others() -> None:
    gate, _, _ = make({"flex": (0, 2, 0)}, queue={"max_requests": 0})
    gate.admit(ask(1, "default"))
    with pytest.raises(Overloaded):
        gate.admit(ask(1, "flex"))


def test_a_binding_promise_refuses_at_the_gate_and_spreads_those_who_come_back() -> None:
    gate, _, _ = make({"default": (0, 5, 0), "outlook": OUTLOOK}, 100, promise={"ttft_ms": 500.0})
    gate.admit(ask(100))  # the last seat
    waits = []
    for _ in range(3):
        with pytest.raises(Overloaded, match="promise") as caught:
            gate.admit(ask(100))
        waits.append(caught.value.retry_after_s)
    # a seat falls free every 0.2 s; a fifth of them are left for those who come first. Those who are to come
    # within half a second keep their seats from the others.
    assert waits[0] == pytest.approx(0.2)
    assert [b - a for a, b in pairwise(waits)] == pytest.approx([0.25, 0.25])
    unbound, _, _ = make({"default": (0, 5, 0), "outlook": OUTLOOK}, 100)
    for _ in range(3):
        unbound.admit(ask(100))
