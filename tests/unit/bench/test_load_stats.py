"""Percentiles, goodput and rates, from answers whose times are written down."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.bench.load_run import Sample
from headway.bench.load_stats import Promise, Spread, Summary, percentile, summarise
from headway.bench.load_try import Try, seconds_of

PROMISE = Promise(ttft_ms=500, itl_ms=50)


def answered(intended: float, *chunks: float, tokens: int | None = None, started: float | None = None) -> Try:
    """A good answer with text at `chunks`."""
    attempt = Try(intended, chat=True)
    attempt.started = intended if started is None else started
    attempt.status, attempt.streaming = 200, True
    for at in chunks:
        attempt.stream.feed(b'data: {"choices":[{"delta":{"content":"x"}}]}\n\n', at)
    attempt.stream.feed(b'data: {"choices":[{"delta":{},"finish_reason":"length"}]}\n\n', chunks[-1])
    attempt.stream.completion_tokens = len(chunks) if tokens is None else tokens
    attempt.finish(chunks[-1])
    return attempt


def refused(intended: float, ended: float, wait: float | None) -> Try:
    attempt = Try(intended, chat=True)
    attempt.started, attempt.status, attempt.retry_after_s = intended, 429, wait
    attempt.finish(ended)
    return attempt


def sample(*tries: Try, asked: int = 2, measured: bool = True) -> Sample:
    return Sample(tries[0].intended, asked, measured, list(tries))


def summary(*samples: Sample, end: float | None = None) -> Summary:
    return summarise(list(samples), PROMISE, 0.0, end, [])


@given(st.lists(st.floats(-1e9, 1e9), min_size=1), st.floats(0.001, 1))
def test_percentile_is_the_nearest_rank(values: list[float], share: float) -> None:
    ranked = sorted(values)
    found = percentile(ranked, share)
    assert sum(v <= found for v in ranked) >= share * len(ranked) - 1e-6
    assert sum(v < found for v in ranked) < share * len(ranked)


def test_spread() -> None:
    spread = Spread.of([i / 1000 for i in range(1, 1001)], 1e3)
    assert spread is not None
    assert (spread.p50, spread.p90, spread.p99, spread.p999) == pytest.approx((500, 900, 990, 999))
    assert (spread.count, spread.mean, spread.max) == pytest.approx((1000, 500.5, 1000))
    assert Spread.of([]) is None


def test_goodput_is_of_all_requests() -> None:
    good = sample(answered(1.0, 1.5, 1.54))
    late = sample(answered(1.0, 1.501, 1.51))
    slow = sample(answered(1.0, 1.1, 1.3))
    by_tokens = sample(answered(1.0, 1.1, 1.29, tokens=5))  # 190 ms for four further tokens
    broken = sample(answered(1.0, 1.1))
    broken.tries[0].error = "connection_lost"
    away = sample(refused(1.0, 1.01, 2.0))
    cut = sample(answered(1.0, 1.1))
    cut.cut_off = True
    s = summary(good, late, slow, by_tokens, broken, away, cut, end=10.0)
    assert (s.requests, s.ok, s.refused, s.failed, s.cut_off) == (7, 4, 1, 1, 1)
    assert (s.good, s.goodput_share, s.goodput_per_s) == (2, pytest.approx(2 / 7), pytest.approx(0.2))
    assert (s.errors, s.refusals) == ({"connection_lost": 1}, {"429": 1})
    assert s.itl_ms is not None
    assert s.itl_ms.max == pytest.approx(200)
    assert any("cut off" in warning for warning in s.warnings)


def test_latency_counts_from_the_intended_time() -> None:
    s = summary(sample(answered(1.0, 1.5, 1.6, started=1.4)))
    assert s.ttft_ms is not None
    assert s.e2e_ms is not None
    assert s.send_lag_ms is not None
    assert (s.ttft_ms.p50, s.e2e_ms.p50, s.send_lag_ms.p50) == pytest.approx((500, 600, 400))
    assert any("sent late" in warning for warning in s.warnings)


def test_a_second_try_counts_from_both_times() -> None:
    again = sample(refused(1.0, 1.01, 3.0), answered(4.01, 4.11, 4.12))
    never = sample(refused(1.0, 1.01, 3.0), refused(4.01, 4.02, None))
    s = summary(again, never)
    r = s.retries
    assert (s.ok, s.refused, s.good) == (1, 1, 0)  # 3.1 s after it was first due
    assert s.good_of_accepted_share == 1.0
    assert (r.second_sent, r.second_accepted, r.second_accepted_share) == (2, 1, 0.5)
    assert r.ttft_ms is not None
    assert r.ttft_from_resend_ms is not None
    assert (r.ttft_ms.p50, r.ttft_from_resend_ms.p50) == pytest.approx((3110, 100))
    assert s.ttft_ms is None  # of first tries
    assert (s.refusals, s.refusals_without_retry_after) == ({"429": 3}, 1)
    assert s.retry_after_s is not None
    assert s.retry_after_s.p50 == 3.0


def test_rates_are_of_the_window() -> None:
    before = sample(answered(-2.0, -1.0, 1.0, tokens=11), measured=False)  # five tokens fall inside
    within = sample(answered(1.0, 2.0, 3.0, tokens=11))
    after = sample(answered(9.0, 9.5, 10.5, tokens=11))  # the first token and five more
    s = summary(before, within, after, end=10.0)
    assert (s.requests, s.warmup_requests) == (2, 1)
    assert s.requests_per_s == pytest.approx(0.2)
    assert s.output_tokens_per_s == pytest.approx((5 + 11 + 6) / 10)


def test_doubts_are_said() -> None:
    silent = answered(1.0, 1.1, 1.2)
    silent.stream.completion_tokens = None
    s = summary(sample(silent, asked=5), sample(answered(1.0, 1.1, 1.2, tokens=9)))
    text = "\n".join(s.warnings)
    assert "1 answers told no usage" in text
    assert "1 answers are shorter" in text
    assert "2.8 tokens per chunk" in text
    assert replace(s, warnings=[]).as_json()["requests"] == 2


def test_retry_after() -> None:
    assert seconds_of(b"2", 1) == 2.0
    assert seconds_of(b"1500", 1000) == 1.5
    assert seconds_of(b"Wed, 21 Oct 2015 07:28:00 GMT", 1) == 0.0
    assert seconds_of(b"soon", 1) is None
