"""What each tenant has had, and how much it wants: the accounts behind fair sharing."""

from collections.abc import Iterator
from math import exp

from headway.core.lane import Lane

OUTPUT_WEIGHT = 2.0  # a generated token weighs as two prompt tokens (Sheng et al. 2024, "Fairness in Serving LLMs")
FORGET_S = 15.0  # in which what a tenant wanted at once fades (to 1/e)
FAINT = 0.5  # streams: below, nothing is kept free for a tenant that is away
LOOK_S = 1.0  # between two looks through all accounts for those that are active
MOST_AWAY = 1024  # accounts kept of tenants without a live request


class Account:
    """One tenant in one lane."""

    __slots__ = ("_prompts", "lane", "live", "served", "tenant", "wanted", "wanted_at", "weight")

    def __init__(self, lane: Lane, tenant: str) -> None:
        self.lane = lane
        self.tenant = tenant
        self.weight = 1.0
        self.served = 0.0  # tokens by weight: its virtual time
        self.live = 0  # requests
        self.wanted = 0.0  # most requests live or refused at once, fading
        self.wanted_at = 0.0
        self._prompts = 0.0  # tokens, fading

    def charge(self, tokens: float) -> None:
        self.served += tokens / self.weight

    def want(self, live: int, now: float, tokens: int = 0) -> None:
        """It has, or would have had, so many requests at once, the newest with so many prompt tokens."""
        self.wanted = max(self.demand(now), float(live))
        self._prompts = self._prompts * self._fade(now) + tokens
        self.wanted_at = max(now, self.wanted_at)

    def prompt_tokens_per_s(self, now: float) -> float:
        """How fast it has asked of late."""
        return self._prompts * self._fade(now) / FORGET_S

    def _fade(self, now: float) -> float:
        return exp(-max(0.0, now - self.wanted_at) / FORGET_S)

    def demand(self, now: float) -> float:
        """Requests it is likely to have at once soon."""
        return max(float(self.live), self.wanted * self._fade(now))


class Ledger:
    """All accounts. A tenant that comes back starts no lower than the least served of those that are there, so that
    nobody saves up credit while away, and what was had alone is held against nobody; what it had too much of beside
    others is not forgiven."""

    def __init__(self) -> None:
        self._accounts: dict[tuple[Lane, str], Account] = {}
        self._live = [0 for _ in Lane]  # accounts with live requests
        self._floor = [0.0 for _ in Lane]  # what the last of them had when it left
        self._active: dict[tuple[Lane, str], Account] = {}  # those that were active at `_looked`, or came since
        self._looked = float("-inf")

    def __iter__(self) -> Iterator[Account]:
        return iter(self._accounts.values())

    def find(self, lane: Lane, tenant: str) -> Account | None:
        return self._accounts.get((lane, tenant))

    def enter(self, lane: Lane, tenant: str, weight: float, now: float) -> Account:
        """A request of the tenant has become live."""
        account = self.note(lane, tenant, weight, now)
        if not account.live:
            served = [a.served for a in self._accounts.values() if a.live and a.lane is lane]
            account.served = max(account.served, min(served, default=self._floor[lane]))
            self._live[lane] += 1
        account.live += 1
        account.want(account.live, now)
        return account

    def note(self, lane: Lane, tenant: str, weight: float, now: float, tokens: int = 0) -> Account:
        """The tenant's account; one more live request is wanted, with so many prompt tokens."""
        account = self._accounts.pop((lane, tenant), None) or Account(lane, tenant)
        self._accounts[(lane, tenant)] = self._active[(lane, tenant)] = account  # the latest last
        account.weight = weight
        account.want(account.live + 1, now, tokens)
        if len(self._accounts) > MOST_AWAY:
            self._forget()
        return account

    def leave(self, account: Account) -> None:
        account.live -= 1
        if not account.live:
            self._live[account.lane] -= 1
            if not self._live[account.lane]:
                self._floor[account.lane] = account.served

    def active(self, now: float) -> list[Account]:
        """Accounts that have live requests, or are likely to have some soon."""
        if now >= self._looked + LOOK_S:
            self._looked = now
            self._active = {k: a for k, a in self._accounts.items() if a.live or a.demand(now) >= FAINT}
        return [a for a in self._active.values() if a.live or a.demand(now) >= FAINT]

    def _forget(self) -> None:
        away = [key for key, account in self._accounts.items() if not account.live]
        for key in away[: max(0, len(away) - MOST_AWAY // 2)]:
            del self._accounts[key]
