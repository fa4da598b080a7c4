"""What is sent again, and after how long."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.client.errors import (
    APIStatusError,
    CircuitOpen,
    ClientError,
    ConnectionFailed,
    DeadlineExceeded,
    StreamDropped,
    StreamFailed,
)
from headway.client.retry import Retry, retry_after

DATE = "Mon, 30 Nov 2026 12:00:00 GMT"


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "2"}, 2.0),
        ({"retry-after": "9", "retry-after-ms": "1500"}, 1.5),
        ({"retry-after": "9", "retry-after-ms": "soon"}, 9.0),
        ({"retry-after": "9", "retry-after-ms": "-1"}, 9.0),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "later"}, None),
        ({"retry-after": "Mon, 30 Nov 2026 12:00:07 GMT", "date": DATE}, 7.0),
        ({"retry-after": "Mon, 30 Nov 2026 11:00:00 GMT", "date": DATE}, 0.0),
        ({"retry-after": "Mon, 30 Nov 1998 12:00:00 GMT", "date": "today"}, 0.0),
    ],
)
def test_waits_that_a_server_names(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers) == seconds


@pytest.mark.parametrize(
    ("error", "again"),
    [
        *((APIStatusError(status, "x"), True) for status in (408, 409, 429, 500, 502, 503, 529)),
        *((APIStatusError(status, "x"), False) for status in (302, 400, 401, 404, 410, 422)),
        (APIStatusError(429, "x", may_retry=False), False),
        (APIStatusError(400, "x", may_retry=True), True),
        (ConnectionFailed("x"), True),
        (ConnectionFailed("x", may_retry=False), False),
        (CircuitOpen(1.0), False),
        (DeadlineExceeded(), False),
        (StreamFailed("x"), False),
        (StreamDropped("x"), False),
    ],
)
def test_what_is_worth_another_try(error: ClientError, again: bool) -> None:
    assert (Retry().wait(1, error) is not None) is again


def test_a_named_wait_is_kept_or_not_waited_for_at_all() -> None:
    retry = Retry(max_wait=60.0)
    assert retry.wait(1, APIStatusError(429, "x", retry_after=60.0)) == 60.0
    assert retry.wait(1, APIStatusError(429, "x", retry_after=60.1)) is None
    assert retry.wait(1, APIStatusError(503, "x", retry_after=0.0)) == 0.0


@given(st.integers(0, 5), st.integers(1, 10))
def test_tries_are_bounded(most: int, tries: int) -> None:
    assert (Retry(most=most).wait(tries, ConnectionFailed("x")) is not None) is (tries <= most)


@given(st.integers(0), st.integers(1, 10_000))
def test_unnamed_waits_double_up_to_a_bound(seed: int, tries: int) -> None:
    retry = Retry(first_wait=0.5, longest_backoff=8.0, rng=random.Random(seed))
    most = min(8.0, 0.5 * 2 ** min(tries - 1, 10))
    assert 0.75 * most <= retry.backoff(tries) <= most
