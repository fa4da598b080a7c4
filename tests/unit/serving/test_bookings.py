"""Times to come back."""

from itertools import count

import pytest

from headway.core.clock import ManualClock
from headway.serving.bookings import AHEAD_S, EARLY_S, LONGEST_S, PATIENCE_S, SHARE, Bookings

KEYS = (b"%d" % n for n in count())  # each a request of its own


def test_each_gets_a_time_of_its_own() -> None:
    clock = ManualClock(10.0)
    bookings = Bookings(clock.now)
    waits = [bookings.book(next(KEYS), 100, 0.5, 0.1) for _ in range(3)]
    assert waits == pytest.approx([0.5, 0.5 + 0.1 / SHARE, 0.5 + 0.2 / SHARE])
    clock.advance(0.5)
    assert bookings.book(next(KEYS), 100, 0.1, 0.1) == pytest.approx(0.3 / SHARE)
    clock.advance(100.0)
    assert bookings.book(next(KEYS), 100, 0.5, 0.1) == 0.5  # what was booked has passed


def test_beyond_a_minute_nothing_is_booked() -> None:
    bookings = Bookings(ManualClock().now)
    far = next(KEYS)
    assert bookings.book(far, 100, 1000.0, 1.0) == LONGEST_S and not bookings.any
    assert bookings.book(far, 100, 1.0, 1.0) == 1.0
    assert max(bookings.book(next(KEYS), 100, 1.0, 1.0) for _ in range(100)) == LONGEST_S


def test_the_same_content_has_one_booking_until_its_time() -> None:
    clock = ManualClock()
    bookings = Bookings(clock.now)
    assert bookings.book(b"same", 100, 1.0, 0.1) == 1.0
    clock.advance(0.4)
    assert bookings.book(b"same", 100, 9.0, 0.1) == pytest.approx(0.6)  # came too early
    assert bookings.book(b"other", 100, 0.0, 0.1) == pytest.approx(0.6 + 0.1 / SHARE)  # only one was taken


@pytest.mark.parametrize(
    ("late", "good"),
    [(-2 * EARLY_S, False), (-0.5 * EARLY_S, True), (0.0, True), (PATIENCE_S - 0.1, True), (PATIENCE_S + 0.1, False)],
)
def test_a_booking_is_redeemed_once_about_its_time(late: float, good: bool) -> None:
    clock = ManualClock()
    bookings = Bookings(clock.now)
    bookings.book(b"key", 100, 1.0, 0.1)
    assert not bookings.redeem(b"another")
    clock.advance(1.0 + late)
    assert bookings.redeem(b"key") == good
    assert not bookings.redeem(b"key")
    assert bookings.any == (late < -EARLY_S)


def test_seats_are_kept_for_those_who_are_to_come_soon() -> None:
    clock = ManualClock()
    bookings = Bookings(clock.now)
    for n in range(40):
        bookings.book(b"%d" % n, 100, 2.0, 0.0)
    assert bookings.due() == (0, 0)  # of 40 in about two seconds
    clock.advance(2.0 - AHEAD_S + 0.1)
    assert bookings.due() == (12, 1200)  # some of them, until it is known how many come back
    clock.advance(AHEAD_S)
    for n in range(10):
        assert bookings.redeem(b"%d" % n)
    assert 20 <= bookings.due()[0] < 30  # of 30: most, as ten came
    clock.advance(PATIENCE_S)
    assert bookings.due() == (0, 0) and not bookings.any


def rounds(bookings: Bookings, clock: ManualClock, count: int, come: bool) -> int:
    """So many bookings one after the other; how many seats twenty of them keep in the end."""
    for n in range(count):
        wait = bookings.book(b"%d" % n, 100, 0.1, 0.01)
        clock.advance(wait if come else wait + PATIENCE_S + 0.1)
        assert bookings.redeem(b"%d" % n) == come
    for n in range(20):
        bookings.book(b"last%d" % n, 100, 0.1, 0.0)
    clock.advance(0.1)
    return bookings.due()[0]


def test_who_never_comes_back_soon_keeps_no_seats_and_who_does_keeps_them() -> None:
    """Forgetting is exponential: after `n` no-shows the kept share is 0.3 x 0.9^n."""
    clock = ManualClock()
    assert rounds(Bookings(clock.now), clock, 0, come=False) == 6
    assert rounds(Bookings(clock.now), clock, 100, come=False) == 0
    assert rounds(Bookings(clock.now), clock, 100, come=True) >= 19
    mended = Bookings(clock.now)
    rounds(mended, clock, 100, come=False)
    clock.advance(10.0)
    assert rounds(mended, clock, 100, come=True) >= 18


def test_bookings_of_those_who_come_too_often_are_bounded() -> None:
    """Spaced, and none beyond a minute."""
    clock = ManualClock()
    bookings = Bookings(clock.now)
    for n in range(5000):
        bookings.book(b"%d" % n, 100, 0.0, 0.1)
        clock.advance(0.001)
    assert len(bookings._times) <= (LONGEST_S + 5.0) * SHARE / 0.1 + 1
    assert len(bookings._queue) <= (LONGEST_S + 5.0 + PATIENCE_S) * SHARE / 0.1 + 1
