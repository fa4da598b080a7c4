"""What tenants have had, and what they are likely to want."""

from math import exp

import pytest

from headway.core.lane import Lane
from headway.scheduling.ledger import FAINT, FORGET_S, MOST_AWAY, Account, Ledger

LANE = Lane.DEFAULT


def enter(ledger: Ledger, tenant: str, lane: Lane = LANE, now: float = 0.0) -> Account:
    return ledger.enter(lane, tenant, 1.0, now)


def test_service_counts_by_weight() -> None:
    ledger = Ledger()
    one, other = ledger.enter(LANE, "one", 1.0, 0.0), ledger.enter(LANE, "other", 4.0, 0.0)
    one.charge(100)
    other.charge(100)
    assert (one.served, other.served) == (100.0, 25.0)


def test_no_credit_is_saved_while_away() -> None:
    ledger = Ledger()
    busy, busier = enter(ledger, "busy"), enter(ledger, "busier")
    busy.charge(1000)
    busier.charge(2000)
    assert enter(ledger, "new").served == 1000.0  # level with the least served of those that are there
    assert enter(ledger, "flex", Lane.FLEX).served == 0.0  # of another lane


def test_who_is_there_keeps_its_credit() -> None:
    ledger = Ledger()
    small, big = enter(ledger, "small"), enter(ledger, "big")
    big.charge(1000)
    assert enter(ledger, "small") is small and small.served == 0.0 and small.live == 2


def test_what_was_too_much_is_not_forgiven() -> None:
    ledger = Ledger()
    small, big = enter(ledger, "small"), enter(ledger, "big")
    small.charge(100)
    big.charge(1000)
    ledger.leave(big)
    assert enter(ledger, "big").served == 1000.0
    ledger.leave(small)
    assert enter(ledger, "small").served == 1000.0


def test_what_was_had_alone_is_held_against_nobody() -> None:
    """Served for long with nobody else there, then away for the moment in which the other comes: no debt. (As in VTC:
    with nobody there, a newcomer is lifted to the level of the last who left.)"""
    ledger = Ledger()
    regular = enter(ledger, "regular")
    regular.charge(10**6)
    ledger.leave(regular)
    newcomer = enter(ledger, "new", now=0.1)
    assert enter(ledger, "regular", now=0.2).served - newcomer.served <= 1000


def test_demand_is_the_most_at_once_and_fades() -> None:
    ledger = Ledger()
    accounts = [enter(ledger, "a") for _ in range(8)]
    for account in accounts:
        ledger.leave(account)
    account = accounts[0]
    assert account.demand(0.0) == 8.0
    assert account.demand(FORGET_S) == pytest.approx(8 / exp(1))
    enter(ledger, "a", now=FORGET_S)
    assert account.demand(FORGET_S) == pytest.approx(8 / exp(1))  # one is less than was wanted of late
    assert account.demand(100 * FORGET_S) == 1.0  # never less than is there
    assert account.demand(-5.0) >= account.demand(0.0)  # a clock that is read in another order


def test_a_refused_request_was_wanted_too() -> None:
    ledger = Ledger()
    for now in (0.0, 0.1, 0.2):
        ledger.note(LANE, "a", 1.0, now)
    account = ledger.find(LANE, "a")
    assert account is not None and account.live == 0
    assert account.demand(0.2) == 1.0 and ledger.active(0.2) == [account]
    assert ledger.active(FORGET_S * 0.6) == [account]
    assert ledger.active(FORGET_S * 0.8) == [] and account.demand(FORGET_S * 0.8) < FAINT


def test_who_is_here_is_active_however_long() -> None:
    ledger = Ledger()
    account = enter(ledger, "a")
    assert ledger.active(1e6) == [account]


@pytest.mark.parametrize("live", [0, 10, 700, 1500])
def test_accounts_of_the_absent_are_bounded_and_the_latest_kept(live: int) -> None:
    ledger = Ledger()
    here = [enter(ledger, f"here{n}") for n in range(live)]
    for n in range(5000):
        ledger.leave(enter(ledger, f"tenant{n}"))
        assert len(list(ledger)) <= max(MOST_AWAY, live + MOST_AWAY // 2) + 1
    assert all(ledger.find(LANE, account.tenant) is account for account in here)
    for n in range(5000 - MOST_AWAY // 3, 5000):
        assert ledger.find(LANE, f"tenant{n}") is not None
