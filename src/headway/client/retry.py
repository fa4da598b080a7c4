"""Whether and when a request is sent again."""

import random
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime

from headway.client.errors import APIStatusError, ClientError, ConnectionFailed

_TRANSIENT = (408, 409, 429)


@dataclass(frozen=True, slots=True)
class Retry:
    """`most` more tries after the first. A server that names a longer wait than `max_wait` seconds is not waited for.
    Where it names none, waits double from `first_wait` to `longest_backoff`, less up to a quarter at random."""

    most: int = 4
    max_wait: float = 60.0
    first_wait: float = 0.5
    longest_backoff: float = 8.0
    rng: random.Random = field(default_factory=random.Random)

    def wait(self, tries: int, error: ClientError) -> float | None:
        """Seconds until the next try after `tries` failed ones, the last with `error`; None: it is final."""
        if tries > self.most or not _may_retry(error):
            return None
        told = error.retry_after if isinstance(error, APIStatusError) else None
        if told is None:
            return self.backoff(tries)
        return told if told <= self.max_wait else None

    def backoff(self, tries: int) -> float:
        """Seconds after the `tries`-th failure in a row, from 1."""
        return min(self.first_wait * 2.0 ** min(tries - 1, 30), self.longest_backoff) * (1 - 0.25 * self.rng.random())


def _may_retry(error: ClientError) -> bool:
    if isinstance(error, APIStatusError):
        if error.may_retry is not None:
            return error.may_retry
        return error.status in _TRANSIENT or error.status >= 500
    return isinstance(error, ConnectionFailed) and error.may_retry


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait by `retry-after-ms`, else by `retry-after` (seconds, or an HTTP date, which is read against the
    server's own `date` where there is one). None: no such header, or none that can be read."""
    for name, per_second in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        with suppress(KeyError, ValueError):
            seconds = float(headers[name]) / per_second
            if 0 <= seconds < float("inf"):
                return seconds
    with suppress(KeyError, ValueError):
        until = parsedate_to_datetime(headers["retry-after"]).timestamp()
        return max(0.0, until - _server_time(headers))
    return None


def _server_time(headers: Mapping[str, str]) -> float:
    with suppress(KeyError, ValueError):
        return parsedate_to_datetime(headers["date"]).timestamp()
    return time.time()
