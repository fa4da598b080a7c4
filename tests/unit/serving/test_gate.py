from typing import Any

import pytest

from headway.core.clock import ManualClock
from headway.core.config import Settings
from headway.core.errors import EngineUnavailable, Overloaded
from headway.core.events import Load, Outlook
from headway.serving.engine_link import EngineLink
from headway.serving.gate import Gate
from headway.serving.ipc import Welcome


def make(load: dict[str, Any] | None = None, capacity: int = 2, **queue: int) -> tuple[Gate, EngineLink, ManualClock]:
    clock = ManualClock(100.0)
    link = EngineLink("ipc://nowhere", 0, clock, 16)
    gate = Gate(link, Settings(queue=queue))
    if load is not None:
        link.engine = Welcome(epoch=1, fingerprint="f", context=100, capacity=capacity, vocab_size=10)
        show(link, **load)
    return gate, link, clock


def show(link: EngineLink, **changes: Any) -> None:
    fields = {"time": 100.0, "ready": True, "waiting": 0, "waiting_tokens": 0, "running": 0, "free_blocks": 1}
    link.load = Load(**{**fields, "total_blocks": 1, "predicted_wait_s": 0.5, **changes})


def test_refuses_before_the_engine_is_ready_and_after_its_last_heartbeat() -> None:
    gate, _, _ = make()
    with pytest.raises(EngineUnavailable, match="loading"):
        gate.admit(1)
    gate, _, clock = make({})
    gate.admit(1)
    clock.advance(11)
    with pytest.raises(EngineUnavailable, match="sign of life"):
        gate.admit(1)


def test_draining() -> None:
    gate, _, _ = make({})
    gate.draining = True
    with pytest.raises(EngineUnavailable) as caught:
        gate.admit(1)
    assert caught.value.code == "shutting_down" and caught.value.retry_after_s >= 1


def test_counts_what_the_load_does_not_show_yet() -> None:
    gate, link, _ = make({}, max_requests=3)
    tickets = [gate.admit(1) for _ in range(5)]  # two find a seat, three wait
    with pytest.raises(Overloaded) as caught:
        gate.admit(1)
    assert caught.value.retry_after_s == 0.5
    for serial, ticket in enumerate(tickets, 1):
        gate.sent(ticket, serial, 1)
    show(link, waiting=1, running=2)
    gate.reflect(3)  # the load shows three of them; two are on the way
    with pytest.raises(Overloaded):
        gate.admit(1)
        gate.admit(1)
    gate.reflect(5)
    show(link, waiting=2, running=2)
    gate.admit(1)
    with pytest.raises(Overloaded):
        gate.admit(1)


def test_a_request_that_is_never_sent_gives_its_place_back() -> None:
    gate, _, _ = make({"running": 2}, max_requests=1)
    ticket = gate.admit(1)
    with pytest.raises(Overloaded):
        gate.admit(1)
    gate.release(ticket)
    gate.release(ticket)
    gate.admit(1)
    with pytest.raises(Overloaded):
        gate.admit(1)


def test_tokens() -> None:
    gate, _, _ = make({"running": 2}, max_tokens=100)
    gate.sent(gate.admit(10), 1, 60)  # the estimate was low
    gate.admit(40)
    with pytest.raises(Overloaded, match="tokens"):
        gate.admit(1)


def test_a_request_that_has_a_seat_is_taken_whatever_its_length() -> None:
    gate, _, _ = make({}, max_tokens=10, max_requests=0)
    gate.admit(1000)


def test_a_binding_promise_refuses_at_the_gate_and_spreads_those_who_come_back() -> None:
    full = Outlook(streams=5, seats=1, wait_s=0.0, token_s=1e-3, unloaded_token_s=5e-4, step_s=0.04, end_s=0.2)
    gate, link, _ = make({"running": 5, "outlook": full}, capacity=100)
    gate = Gate(link, Settings(promise={"ttft_ms": 500.0}))  # type: ignore[arg-type]
    gate.admit(100)  # the last seat
    waits = []
    for _ in range(3):
        with pytest.raises(Overloaded, match="promise") as caught:
            gate.admit(100)
        waits.append(caught.value.retry_after_s)
    assert waits == pytest.approx([0.2, 0.6, 1.0])
    unbound = Gate(link, Settings())
    for _ in range(3):
        unbound.admit(100)
