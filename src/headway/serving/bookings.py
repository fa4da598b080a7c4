"""When refused requests are told to come back: one after the other, at the pace at which seats fall free."""

from collections.abc import Callable

LONGEST_S = 60.0
SHARE = 0.5  # of the seats that fall free; the rest is for those who come for the first time


class Bookings:
    """A clock that runs ahead: each booking takes the next time, and nobody is sent back into a crowd of others.

    Told the same second, all refused ones would return together and be refused again.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._next = 0.0

    def book(self, wait_s: float, seat_s: float) -> float:
        """Seconds until a request should come back that could not be served before `wait_s`, where a seat falls free
        every `seat_s`. At most 60: beyond that nothing is booked."""
        now = self._now()
        time = max(self._next, now + wait_s)
        if time - now >= LONGEST_S:
            return LONGEST_S
        self._next = time + seat_s / SHARE
        return time - now
