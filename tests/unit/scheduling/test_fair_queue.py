"""The waiting queue against a naive one that sorts, and what fairness within a lane amounts to."""

from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from rig import make_request

from headway.core.lane import Lane
from headway.scheduling.ledger import Account
from headway.scheduling.sequence import Sequence
from headway.scheduling.waiting import FairQueue, WaitingQueue

AGING = 10.0
TENANTS = ["a", "b", "c"]


class Source:
    """Sequences of tenants that have an account each in a lane."""

    def __init__(self) -> None:
        self.accounts: dict[tuple[Lane, str], Account] = {}
        self.serial = 0

    def account(self, tenant: str, lane: Lane = Lane.DEFAULT) -> Account:
        return self.accounts.setdefault((lane, tenant), Account(lane, tenant))

    def make(self, tenant: str, arrival: float, lane: Lane = Lane.DEFAULT, tokens: int = 1, **fields: Any) -> Sequence:
        self.serial += 1
        request = make_request(self.serial, [5] * tokens, arrival=arrival, lane=lane, tenant=tenant)
        return Sequence(request, self.serial, 100, frozenset(), self.account(tenant, lane), **fields)


def drain(queue: FairQueue, cost: float) -> list[Sequence]:
    """Takes one after the other, and charges each."""
    taken = []
    while (head := queue.head) is not None:
        queue.remove(head)
        head.account.charge(cost)
        taken.append(head)
    return taken


def test_within_a_tenant_first_come_first_served() -> None:
    source, queue = Source(), FairQueue(AGING)
    for arrival in (3.0, 1.0, 2.0, 1.0):
        queue.add(source.make("a", arrival))
    assert [s.id for s in drain(queue, 100.0)] == [2, 4, 3, 1]


@pytest.mark.parametrize("weight", [1.0, 3.0])
def test_tenants_are_served_by_weight(weight: float) -> None:
    """A crowd and one with few requests, all there from the beginning."""
    source, queue = Source(), FairQueue(AGING)
    source.account("few").weight = weight
    for tenant, count in (("crowd", 200), ("few", 60)):
        for _ in range(count):
            queue.add(source.make(tenant, 0.0))
    order = [s.account.tenant for s in drain(queue, 60.0)]
    assert order[:40].count("few") == pytest.approx(40 * weight / (1 + weight), abs=1)
    assert order[-1] == "crowd"


@given(
    st.lists(st.tuples(st.sampled_from(TENANTS), st.floats(0, 100)), min_size=1, max_size=30),
    st.floats(0, 50),
    st.lists(st.floats(0, 1000), min_size=30, max_size=30),
)
def test_a_younger_one_of_another_tenant_goes_first_only_within_the_bound(
    requests: list[tuple[str, float]], aging: float, costs: list[float]
) -> None:
    """It may be younger by the difference in service, a second weighing `aging` tokens: (served - its) / aging."""
    source, queue = Source(), FairQueue(aging)
    waiting = {s.id: s for s in [source.make(tenant, arrival) for tenant, arrival in requests]}
    for sequence in waiting.values():
        queue.add(sequence)
    for cost in costs[: len(waiting)]:
        chosen = queue.head
        assert chosen is not None
        for other in waiting.values():
            ahead = other.account.served - chosen.account.served
            assert aging * (chosen.arrival - other.arrival) <= ahead + 1e-6
        queue.remove(waiting.pop(chosen.id))
        chosen.account.charge(cost)


def test_a_queue_that_is_not_served_keeps_no_stale_entries() -> None:
    """A lane that gets nothing, whose requests are cancelled before their turn: each is older than the last head."""
    source, queue = Source(), FairQueue(AGING)
    for tenant in TENANTS:
        queue.add(source.make(tenant, 1e9))
    for step in range(5000):
        sequence = source.make(TENANTS[step % 3], float(step))
        queue.add(sequence)
        queue.remove(sequence)
        assert len(queue._heap) <= 2 * 3 + 65
    assert queue.count == queue.tokens == 3


def test_another_weight_of_waiting_holds_at_once() -> None:
    source, queue = Source(), FairQueue(0.0)
    source.account("old").charge(100.0)
    queue.add(source.make("old", 0.0))
    queue.add(source.make("new", 9.0))
    assert queue.head is not None and queue.head.account.tenant == "new"
    queue.set_aging(100.0)
    assert queue.head.account.tenant == "old"


class QueueMachine(RuleBasedStateMachine):
    """Whatever happens, heads and counts are those of a list that is sorted anew each time."""

    def __init__(self) -> None:
        super().__init__()
        self.source = Source()
        self.queue = WaitingQueue(AGING)
        self.aging = AGING
        self.model: list[Sequence] = []

    @rule(
        tenant=st.sampled_from(TENANTS),
        arrival=st.floats(0, 20),
        lane=st.sampled_from(Lane),
        tokens=st.integers(1, 8),
        started=st.booleans(),
    )
    def add(self, tenant: str, arrival: float, lane: Lane, tokens: int, started: bool) -> None:
        sequence = self.source.make(tenant, arrival, lane, tokens, long_prompt=5)
        sequence.started = started
        self.queue.add(sequence)
        self.model.append(sequence)

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        sequence = self.model.pop(data.draw(st.integers(0, len(self.model) - 1)))
        self.queue.remove(sequence)

    @rule(lane=st.sampled_from(Lane), long=st.booleans(), cost=st.floats(0, 300))
    def take(self, lane: Lane, long: bool, cost: float) -> None:
        head = self.queue.newcomer(lane, long)
        if head is not None:
            self.queue.remove(head)
            self.model.remove(head)
            head.account.charge(cost)

    @rule(tenant=st.sampled_from(TENANTS), lane=st.sampled_from(Lane), tokens=st.floats(0, 300))
    def charge(self, tenant: str, lane: Lane, tokens: float) -> None:
        self.source.account(tenant, lane).charge(tokens)

    @rule(aging=st.sampled_from([0.0, 1.0, 10.0, 1000.0]))
    def age(self, aging: float) -> None:
        self.queue.set_aging(aging)
        self.aging = aging

    @invariant()
    def is_the_naive_queue(self) -> None:
        queue, model = self.queue, self.model
        assert list(queue) == sorted(model, key=lambda s: s.order) and len(queue) == len(model)
        for lane in Lane:
            mine = [s for s in model if s.lane is lane]
            assert queue.count(lane) == len(mine)
            assert queue.tokens(lane) == sum(len(s.known) for s in mine)
            assert queue.returning(lane) is min((s for s in mine if s.started), key=lambda s: s.order, default=None)
            fresh = [s for s in mine if not s.started]
            assert queue.long_tokens(lane) == sum(len(s.known) for s in fresh if s.long)
            for tenant in TENANTS:
                tokens = sum(len(s.known) for s in fresh if s.account.tenant == tenant)
                assert queue.tokens_of(lane, tenant) == tokens
            for long in (False, True):
                assert queue.newcomer(lane, long) is self.naive([s for s in fresh if s.long == long])

    def naive(self, fresh: list[Sequence]) -> Sequence | None:
        oldest: dict[str, Sequence] = {}
        for sequence in sorted(fresh, key=lambda s: s.order):
            oldest.setdefault(sequence.account.tenant, sequence)
        heads = oldest.values()
        return min(heads, key=lambda s: (s.account.served + self.aging * s.arrival, s.account.tenant), default=None)


TestQueueMachine = QueueMachine.TestCase
