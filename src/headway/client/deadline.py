"""The one limit of a call: over its waits, retries, answers and resumes."""

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from headway.client.errors import DeadlineExceeded
from headway.core.clock import Clock

LONGEST_S = 86_400.0  # that a Headway server takes in its header


class Deadline:
    """`seconds` from now by `clock`; None: never."""

    def __init__(self, clock: Clock, seconds: float | None) -> None:
        if seconds is not None and not seconds > 0:
            raise ValueError("a timeout is more than 0 seconds, or None")
        self._clock = clock
        self._end = math.inf if seconds is None else clock.now() + seconds

    def left(self) -> float:
        """Seconds; infinite where there is no limit. Raises DeadlineExceeded once there are none."""
        left = self._end - self._clock.now()
        if left <= 0:
            raise DeadlineExceeded
        return left

    @asynccontextmanager
    async def limit(self, silence_s: float = math.inf) -> AsyncIterator[None]:
        """Bounds what is awaited inside. Raises DeadlineExceeded, or TimeoutError after `silence_s` seconds."""
        left = self.left()
        most = min(left, silence_s)
        timer = asyncio.timeout(None if most == math.inf else most)
        try:
            async with timer:
                yield
        except TimeoutError:
            if timer.expired() and left <= silence_s:
                raise DeadlineExceeded from None
            raise

    def header(self) -> str | None:
        """What the server is told: a little less, so that its own last word (a truncated answer, the reason) is heard
        before this side hangs up. None where there is no limit."""
        left = self.left()
        return None if left == math.inf else f"{min(left - min(0.1, left * 0.05), LONGEST_S):.3f}"
