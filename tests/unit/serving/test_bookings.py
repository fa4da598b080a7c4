"""Times to come back."""

import pytest

from headway.core.clock import ManualClock
from headway.serving.bookings import LONGEST_S, SHARE, Bookings


def test_each_gets_a_time_of_its_own() -> None:
    clock = ManualClock(10.0)
    bookings = Bookings(clock.now)
    waits = [bookings.book(0.5, 0.1) for _ in range(3)]
    assert waits == pytest.approx([0.5, 0.5 + 0.1 / SHARE, 0.5 + 0.2 / SHARE])
    clock.advance(0.5)
    assert bookings.book(0.1, 0.1) == pytest.approx(0.3 / SHARE)
    clock.advance(100.0)
    assert bookings.book(0.5, 0.1) == 0.5  # what was booked has passed


def test_beyond_a_minute_nothing_is_booked() -> None:
    bookings = Bookings(ManualClock().now)
    assert bookings.book(1000.0, 1.0) == LONGEST_S
    assert bookings.book(1.0, 1.0) == 1.0
    assert max(bookings.book(1.0, 1.0) for _ in range(100)) == LONGEST_S
