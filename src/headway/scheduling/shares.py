"""How many of the free seats are for whom, when several tenants or lanes want them."""

from collections.abc import Mapping
from heapq import nlargest
from math import ceil

from headway.core.events import Outlook, Share
from headway.core.lane import Lane
from headway.scheduling.ledger import Account, Ledger
from headway.scheduling.waiting import WaitingQueue

MOST_SHARES = 16  # tenants told apart in an outlook: it is made at every step, from every pair of them
SPARE = 1.25  # what is kept free for a tenant, relative to the most it wanted at once
MOST_AHEAD = 0.5  # of the time for prompts, what is expected to go to modest tenants
LEAST_LEFT = 0.25  # of all seats, what lanes before its own never keep from a lane


def seats_for(account: Account, wanted: Mapping[Account, float], outlook: Outlook) -> tuple[int, bool]:
    """Seats that a request of `account` may take, and whether it has less than its share beside others; `wanted` is
    the demand of all active interactive accounts.

    Who has less than its weighted share of all seats may take any, the last ones too, but for those that lanes before
    its own are likely to want soon. Who has more leaves to the others what they are likely to want, up to their shares.
    """
    lane, weight = account.lane, account.weight
    total, weights = outlook.seats, 0.0
    peers = []
    for other in wanted:
        total += other.live
        if other.lane is lane:
            peers.append(other)
            weights += other.weight
    above = sum([_missing(a, total, wanted[a]) for a in wanted if a.lane < lane])
    over = account.live >= total * weight / weights
    kept = min(above, int(total * (1.0 - LEAST_LEFT)))
    if over:
        each = total / weights
        kept += sum([_missing(a, a.weight * each, wanted[a]) for a in peers if a is not account])
    modest = len(peers) > 1 and not over
    return max(0, (outlook.last_seats if modest else outlook.seats) - kept), modest


def _missing(account: Account, most: float, demand: float) -> int:
    """Seats that it does not have but is likely to want, up to `most` in all."""
    return max(0, ceil(min(most, SPARE * demand)) - account.live)


def shares_of(
    ledger: Ledger, waiting: WaitingQueue, begun: Mapping[Account, int], outlook: Outlook, now: float
) -> list[Share]:
    """The outlook of each active interactive tenant, of at most MOST_SHARES, the busiest. `begun`: tokens left of
    prompts under way."""
    wanted = {a: a.demand(now) for a in ledger.active(now) if a.lane is not Lane.FLEX}
    if len(wanted) > MOST_SHARES:
        wanted = dict(nlargest(MOST_SHARES, wanted.items(), key=lambda item: item[1]))
    total = sum([a.weight for a in wanted])
    granted = {account: seats_for(account, wanted, outlook) for account in wanted}
    asking = {a: a.prompt_tokens_per_s(now) for a, (_, modest) in granted.items() if modest}
    coming = sum(asking.values())
    shares = []
    for account, (seats, modest) in granted.items():
        lane = account.lane
        # its own, in turn with the others'
        own: float = waiting.tokens_of(lane, account.tenant) + begun.get(account, 0)
        others = [a.served for a in wanted if a is not account and a.live and a.lane is lane]
        if others and account.served + own / account.weight >= min(others):
            own *= total / account.weight
        wait = min(outlook.waits_s[lane], own * outlook.token_s)
        # what modest ones will ask for meanwhile goes first too
        slow = 1.0 if modest else 1.0 / (1.0 - min(MOST_AHEAD, coming * outlook.token_s))
        shares.append(Share(lane=lane, tenant=account.tenant, modest=modest, seats=seats, wait_s=wait, slow=slow))
    return shares
