"""One clock over a whole call."""

import asyncio
import math

import pytest

from headway.client.deadline import Deadline
from headway.client.errors import DeadlineExceeded
from headway.core.clock import ManualClock


async def test_it_ends_what_is_awaited() -> None:
    deadline = Deadline(ManualClock(), 0.01)
    with pytest.raises(DeadlineExceeded):
        async with deadline.limit(silence_s=60.0):
            await asyncio.Event().wait()


async def test_silence_is_something_else() -> None:
    deadline = Deadline(ManualClock(), 60.0)
    with pytest.raises(TimeoutError):
        async with deadline.limit(silence_s=0.01):
            await asyncio.Event().wait()


async def test_nothing_is_begun_after_it() -> None:
    clock = ManualClock()
    deadline = Deadline(clock, 5.0)
    clock.advance(4.0)
    assert deadline.left() == 1.0 and deadline.header() == "0.950"
    clock.advance(1.0)
    with pytest.raises(DeadlineExceeded):
        async with deadline.limit():
            pytest.fail("begun")


def test_what_the_server_is_told() -> None:
    assert Deadline(ManualClock(), None).header() is None
    assert Deadline(ManualClock(), None).left() == math.inf
    assert Deadline(ManualClock(), 10.0).header() == "9.900"
    assert Deadline(ManualClock(), 1e9).header() == "86400.000"


@pytest.mark.parametrize("seconds", [0.0, -1.0, math.nan])
def test_senseless_timeouts(seconds: float) -> None:
    with pytest.raises(ValueError, match="more than 0"):
        Deadline(ManualClock(), seconds)
