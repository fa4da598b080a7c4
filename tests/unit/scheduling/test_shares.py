"""Whose the free seats are."""

import hypothesis.strategies as st
import pytest
from hypothesis import given
from rig import make_outlook

from headway.core.events import Outlook
from headway.core.lane import Lane
from headway.scheduling.ledger import FORGET_S, Account, Ledger
from headway.scheduling.shares import LEAST_LEFT, MOST_SHARES, SPARE, seats_for, shares_of
from headway.scheduling.waiting import WaitingQueue

NOW = 100.0


def account(lane: Lane, tenant: str, live: int, wanted: float = 0.0, weight: float = 1.0, age: float = 0.0) -> Account:
    made = Account(lane, tenant)
    made.live, made.weight, made.wanted, made.wanted_at = live, weight, wanted, NOW - age
    return made


def look(seats: int, last: int | None = None, wait_s: float = 0.0) -> Outlook:
    return make_outlook(streams=10, seats=seats, last_seats=seats if last is None else last, waits_s=[wait_s] * 3)


def wanted_by(accounts: list[Account]) -> dict[Account, float]:
    return {account: account.demand(NOW) for account in accounts}


def seats_of(account: Account, accounts: list[Account], seats: int, last: int | None = None) -> int:
    """Those it may take of `seats`, or of the `last` ones."""
    return seats_for(account, wanted_by(accounts), look(seats, last))[0]


def is_modest(account: Account, accounts: list[Account], seats: int) -> bool:
    return seats_for(account, wanted_by(accounts), look(seats))[1]


def accounts_of_many() -> st.SearchStrategy[list[Account]]:
    one = st.builds(
        account,
        st.sampled_from([Lane.PRIORITY, Lane.DEFAULT]),
        st.sampled_from("abcdef"),
        st.integers(0, 50),
        st.floats(0, 100),
        st.floats(0.1, 10),
        st.floats(0, 60),
    )
    return st.lists(one, min_size=1, max_size=8)


@given(accounts_of_many(), st.integers(0, 200))
def test_never_less_than_none_or_more_than_there_are(accounts: list[Account], seats: int) -> None:
    for each in accounts:
        assert 0 <= seats_of(each, accounts, seats) <= seats


@given(accounts_of_many(), st.integers(1, 200))
def test_who_has_less_than_its_share_leaves_seats_to_lanes_before_it_only(accounts: list[Account], seats: int) -> None:
    total = seats + sum(a.live for a in accounts)
    for each in accounts:
        peers = [a for a in accounts if a.lane is each.lane]
        if each.live >= total * each.weight / sum(a.weight for a in peers):
            continue
        mine = seats_of(each, accounts, seats)
        if each.lane is Lane.PRIORITY:
            assert mine == seats
        else:
            before = [a for a in accounts if a.lane is Lane.PRIORITY]
            wanted = sum(max(0.0, min(total, SPARE * a.demand(NOW)) - a.live) for a in before)
            assert mine >= seats - wanted - len(before) or mine >= seats - total * (1 - LEAST_LEFT)
            assert mine >= min(seats, seats - int(total * (1 - LEAST_LEFT)))
            assert not before or mine <= max(0, seats - min(int(wanted), int(total * (1 - LEAST_LEFT))))


@given(accounts_of_many(), st.integers(1, 200))
def test_the_more_others_want_the_less_is_left(accounts: list[Account], seats: int) -> None:
    before = [seats_of(each, accounts, seats) for each in accounts]
    for each in accounts:
        each.wanted *= 2
    assert all(seats_of(a, accounts, seats) <= b for a, b in zip(accounts, before, strict=True))


def test_alone_all_is_yours() -> None:
    only = account(Lane.DEFAULT, "a", 30)
    assert seats_of(only, [only], 7) == 7


def test_who_has_too_much_leaves_what_the_others_want_up_to_their_share() -> None:
    big, small = account(Lane.DEFAULT, "big", 20), account(Lane.DEFAULT, "small", 0, wanted=4.0)
    both = [big, small]
    assert seats_of(big, both, 10) == 10 - 5  # 4 wanted, and a quarter more
    assert seats_of(small, both, 10) == 10
    small.wanted = 1000.0
    assert seats_of(big, both, 10) == 0  # half of 30 are kept for it, and there are 10
    third = account(Lane.DEFAULT, "third", 0)
    assert seats_of(big, [*both, third], 34) == 34 - 18  # of 54, a third of all
    small.wanted, small.wanted_at = 4.0, NOW - 100 * FORGET_S
    assert seats_of(big, both, 10) == 9  # as good as forgotten


@pytest.mark.parametrize(("weight", "left"), [(1.0, 5), (4.0, 10)])
def test_weights_say_what_too_much_is(weight: float, left: int) -> None:
    big = account(Lane.DEFAULT, "big", 20, weight=weight)
    small = account(Lane.DEFAULT, "small", 0, wanted=4.0)
    assert seats_of(big, [big, small], 10) == left


def test_a_lane_is_not_kept_from_all_seats() -> None:
    """Whatever the lanes before it want, a quarter of all is not kept for them."""
    first, second = account(Lane.PRIORITY, "a", 0, wanted=1000.0), account(Lane.DEFAULT, "b", 0)
    assert seats_of(second, [first, second], 40) == 10
    assert seats_of(first, [first, second], 40) == 40


def test_the_last_seats_are_for_those_who_have_less_than_their_share_beside_others() -> None:
    big, small = account(Lane.DEFAULT, "big", 20), account(Lane.DEFAULT, "small", 1)
    assert [is_modest(a, [big, small], 5) for a in (big, small)] == [False, True]
    assert seats_of(small, [big, small], 0, last=3) == 3
    assert seats_of(big, [big, small], 0, last=3) == 0
    assert not is_modest(small, [small], 5) and seats_of(small, [small], 0, last=3) == 0  # alone


def test_an_outlook_names_the_busiest() -> None:
    ledger, waiting = Ledger(), WaitingQueue(10.0)
    seen = look(5, wait_s=1.0)
    ledger.enter(Lane.DEFAULT, "0", 1.0, NOW)
    ledger.enter(Lane.FLEX, "other", 1.0, NOW)  # flex shares no seats
    [share] = shares_of(ledger, waiting, {}, seen, NOW)
    assert (share.tenant, share.seats, share.modest) == ("0", 5, False)
    for n in range(3 * MOST_SHARES):
        for _ in range(1 + n % 3):
            ledger.enter(Lane.DEFAULT, str(n), 1.0, NOW)
    shares = shares_of(ledger, waiting, {}, seen, NOW)
    assert len(shares) == MOST_SHARES
    assert all(int(share.tenant) % 3 for share in shares)
    assert all(0.0 <= share.wait_s <= 1.0 for share in shares)


def test_a_tenant_waits_for_its_own_and_for_what_others_get_in_turn() -> None:
    """Its own 400 tokens, which take as long as 800 where two have their turns, or all there is if that is less."""
    ledger, waiting = Ledger(), WaitingQueue(10.0)
    mine, theirs = ledger.enter(Lane.DEFAULT, "a", 1.0, NOW), ledger.enter(Lane.DEFAULT, "b", 1.0, NOW)
    begun = {mine: 400, theirs: 5000}

    def wait(queue_s: float) -> float:
        shares = {share.tenant: share for share in shares_of(ledger, waiting, begun, look(5, wait_s=queue_s), NOW)}
        return shares["a"].wait_s

    assert wait(5.4) == pytest.approx(0.8)
    assert wait(0.5) == 0.5
    theirs.charge(10_000)  # then "a" has its turn first, until it has had as much
    assert wait(5.4) == pytest.approx(0.4)
