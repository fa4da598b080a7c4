"""When refused requests are told to come back, and who has come back as told."""

from collections.abc import Callable
from heapq import heappop, heappush

LONGEST_S = 60.0
SHARE = 0.8  # of the seats that fall free; the rest is for those who come for the first time
EARLY_S = 0.05  # clocks and networks differ
PATIENCE_S = 0.5  # after which a booked seat is given to others
AHEAD_S = 0.4  # seats of those who are to come so soon are kept for them
LEARN = 0.1  # weight of one booking in the share of those that come back


class Bookings:
    """A clock that runs ahead: each booking takes the next time, and nobody is sent back into a crowd of others. Told
    the same second, all refused ones would return together and be refused again.

    A booking is kept under the request's own content: clients send the same again. Until it is redeemed, or its time
    has long passed, its seat is not for others, in so far as those who were told have come back of late.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._next = 0.0
        self._coming = 0.3  # share of the bookings that are redeemed
        self._times: dict[bytes, float] = {}  # by content
        # By time, with prompt tokens; bounded, as bookings are spaced and end in a minute.
        self._queue: list[tuple[float, bytes, int]] = []

    @property
    def any(self) -> bool:
        """Whether anybody is expected."""
        return bool(self._times)

    def book(self, key: bytes, tokens: int, wait_s: float, seat_s: float) -> float:
        """Seconds until the request of content `key` should come back, that could not be served before `wait_s`, where
        a seat falls free every `seat_s`. At most 60: beyond that nothing is booked."""
        now = self._now()
        self._forget(now)
        held = self._times.get(key)
        if held is not None and held > now:
            return held - now  # came too early, or another copy of the same: one booking is enough
        time = max(self._next, now + wait_s)
        if time - now >= LONGEST_S:
            return LONGEST_S
        self._next = time + max(1e-3, seat_s / SHARE)
        self._times[key] = time
        heappush(self._queue, (time, key, tokens))
        return time - now

    def redeem(self, key: bytes) -> bool:
        """Whether the request has come at the time it was told; its booking is used up then."""
        now = self._now()
        self._forget(now)
        time = self._times.get(key)
        if time is None or time - EARLY_S > now:
            return False
        del self._times[key]
        self._coming += LEARN * (1.0 - self._coming)
        return True

    def due(self) -> tuple[int, int]:
        """Seats and prompt tokens to keep for those who are to come now or soon."""
        if not self._queue:
            return 0, 0
        now = self._now()
        self._forget(now)
        soon = [tokens for time, key, tokens in self._queue if time <= now + AHEAD_S and self._times.get(key) == time]
        return int(self._coming * len(soon)), int(self._coming * sum(soon))

    def _forget(self, now: float) -> None:
        while self._queue and self._queue[0][0] + PATIENCE_S < now:
            time, key, _ = heappop(self._queue)
            if self._times.get(key) == time:
                del self._times[key]
                self._coming -= LEARN * self._coming
