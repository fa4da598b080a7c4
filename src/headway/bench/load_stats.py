"""Turns what came back into percentiles, rates and goodput. Every measured request is in exactly one outcome."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field

from headway.bench.load_run import Sample
from headway.bench.load_try import Try

LATE_MS = 10.0  # p99 of the client's lateness from which its numbers are doubtful


@dataclass(frozen=True, slots=True)
class Promise:
    """First token within `ttft_ms` of the intended time, and `itl_ms` per further token on the request's mean."""

    ttft_ms: float = 500.0
    itl_ms: float = 50.0


@dataclass(frozen=True, slots=True)
class Spread:
    """Percentiles by nearest rank: each is a value that occurred."""

    count: int
    mean: float
    p50: float
    p90: float
    p95: float
    p99: float
    p999: float
    max: float

    @classmethod
    def of(cls, values: Iterable[float], scale: float = 1.0) -> "Spread | None":
        ranked = sorted(values)
        if not ranked:
            return None
        p50, p90, p95, p99, p999 = (percentile(ranked, p) * scale for p in (0.5, 0.9, 0.95, 0.99, 0.999))
        mean = math.fsum(ranked) / len(ranked) * scale
        return cls(len(ranked), mean, p50, p90, p95, p99, p999, ranked[-1] * scale)


def percentile(ranked: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` of the values do not exceed."""
    return ranked[max(0, math.ceil(share * len(ranked) - 1e-9) - 1)]


@dataclass(frozen=True, slots=True)
class Retries:
    """Second and later tries. Waits are the told ones; `ttft_ms` counts from the request's first intended time."""

    sent: int
    accepted: int
    second_sent: int
    second_accepted: int
    second_accepted_share: float | None
    ttft_ms: Spread | None
    ttft_from_resend_ms: Spread | None


@dataclass(slots=True)
class Summary:
    """Times in ms, rates per second. The outcomes ok, refused, failed and cut_off add up to `requests`."""

    window_s: float  # from the end of the warm-up
    warmup_requests: int
    requests: int
    ok: int
    refused: int  # on their last try
    failed: int
    cut_off: int
    good: int
    goodput_share: float  # of requests, from the first intended time
    goodput_per_s: float
    accepted: int
    good_of_accepted_share: float | None  # each from the intended time of the try that was accepted
    offered_per_s: float
    requests_per_s: float  # ended well inside the window, whenever sent
    output_tokens_per_s: float  # made inside the window
    prompt_tokens: Spread | None
    output_tokens: Spread | None
    ttft_ms: Spread | None  # of first tries
    itl_ms: Spread | None  # mean per further token of each request
    gap_ms: Spread | None
    e2e_ms: Spread | None  # of first tries
    refusal_ms: Spread | None
    retry_after_s: Spread | None
    refusals: dict[str, int]  # tries, by status
    refusals_without_retry_after: int
    retries: Retries
    errors: dict[str, int]
    messages: dict[str, str]  # an example of each kind of error or refusal
    send_lag_ms: Spread | None
    loop_lag_ms: Spread | None
    resent: int  # over a new connection, the idle one having been closed
    warnings: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, object]:
        return asdict(self)


def ttft(attempt: Try, intended: float) -> float:
    return attempt.stream.first - intended


def itl(attempt: Try) -> float | None:
    """Mean seconds per further token; None if there was none."""
    further = attempt.tokens - 1
    return (attempt.stream.last - attempt.stream.first) / further if further > 0 else None


def is_good(attempt: Try, intended: float, promise: Promise) -> bool:
    if not attempt.ok:
        return False
    mean = itl(attempt)
    return ttft(attempt, intended) * 1e3 <= promise.ttft_ms and (mean is None or mean * 1e3 <= promise.itl_ms)


def summarise(
    samples: list[Sample], promise: Promise, begin: float, end: float | None, ticks: Iterable[float]
) -> Summary:
    """`begin`: end of the warm-up. `end`: of the window; None: when the last answer ended."""
    measured = [s for s in samples if s.measured]
    outcomes = Counter(s.outcome for s in measured)
    tries = [t for s in measured for t in s.tries]
    everything = [t for s in samples for t in s.tries]
    end = max((t.ended for t in everything), default=begin) if end is None else end
    window = max(end - begin, 1e-9)
    ok = [(s, s.tries[-1]) for s in measured if s.outcome == "ok"]
    first = [t for s, t in ok if len(s.tries) == 1]
    accepted = [t for t in tries if t.accepted]
    refused = [t for t in tries if t.refused]
    good = sum(is_good(t, _origin(s), promise) for s, t in ok)
    told = [t.retry_after_s for t in refused if t.retry_after_s is not None]
    summary = Summary(
        window_s=window,
        warmup_requests=sum(not s.measured for s in samples),
        requests=len(measured),
        ok=len(ok),
        refused=outcomes["refused"],
        failed=outcomes["failed"],
        cut_off=outcomes["cut_off"],
        good=good,
        goodput_share=good / len(measured) if measured else 0.0,
        goodput_per_s=good / window,
        accepted=len(accepted),
        good_of_accepted_share=_share(sum(is_good(t, t.intended, promise) for t in accepted), len(accepted)),
        offered_per_s=len(measured) / window,
        requests_per_s=sum(t.ok and begin <= t.ended <= end for t in everything) / window,
        output_tokens_per_s=math.fsum(_tokens_within(t, begin, end) for t in everything) / window,
        prompt_tokens=Spread.of(t.stream.prompt_tokens for _, t in ok if t.stream.prompt_tokens is not None),
        output_tokens=Spread.of(t.tokens for _, t in ok),
        ttft_ms=Spread.of((ttft(t, t.intended) for t in first), 1e3),
        itl_ms=Spread.of((mean for _, t in ok if (mean := itl(t)) is not None), 1e3),
        gap_ms=Spread.of((gap for _, t in ok for gap in t.stream.gaps), 1e3),
        e2e_ms=Spread.of((t.ended - t.intended for t in first), 1e3),
        refusal_ms=Spread.of((t.ended - t.intended for t in refused), 1e3),
        retry_after_s=Spread.of(told),
        refusals=dict(Counter(str(t.status) for t in refused)),
        refusals_without_retry_after=len(refused) - len(told),
        retries=_retries(measured),
        errors=dict(Counter(s.tries[-1].error or "unknown" for s in measured if s.outcome == "failed")),
        messages={t.error or str(t.status): t.message for t in tries if t.message},
        send_lag_ms=Spread.of((t.started - t.intended for t in tries if t.started), 1e3),
        loop_lag_ms=Spread.of(ticks, 1e3),
        resent=sum(t.resent for t in tries),
    )
    summary.warnings = _warnings(summary, ok)
    return summary


def _origin(sample: Sample) -> float:
    """A first try that a timer sent a millisecond early counts from its sending."""
    return min(sample.intended, sample.tries[0].intended)


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _tokens_within(attempt: Try, begin: float, end: float) -> float:
    """The first token at its time, the others spread evenly up to the last."""
    stream = attempt.stream
    if not stream.chunks:
        return 0.0
    inside = min(stream.last, end) - max(stream.first, begin)
    share = inside / (stream.last - stream.first) if stream.last > stream.first else float(inside >= 0)
    return float(begin <= stream.first <= end) + max(0.0, share) * (attempt.tokens - 1)


def _retries(measured: list[Sample]) -> Retries:
    again = [(s, t) for s in measured for t in s.tries[1:] if t.started]
    second = [s.tries[1] for s in measured if len(s.tries) > 1 and s.tries[1].started]
    fine = [(s, t) for s, t in again if t.ok]
    taken = sum(t.accepted for t in second)
    return Retries(
        sent=len(again),
        accepted=sum(t.accepted for _, t in again),
        second_sent=len(second),
        second_accepted=taken,
        second_accepted_share=_share(taken, len(second)),
        ttft_ms=Spread.of((ttft(t, s.intended) for s, t in fine), 1e3),
        ttft_from_resend_ms=Spread.of((ttft(t, t.intended) for _, t in fine), 1e3),
    )


def _warnings(summary: Summary, ok: list[tuple[Sample, Try]]) -> list[str]:
    found = []
    for name, lag in (("sent", summary.send_lag_ms), ("read", summary.loop_lag_ms)):
        if lag is not None and lag.p99 > LATE_MS:
            found.append(f"this client itself {name} late: p99 {lag.p99:.0f} ms. Do not trust these latencies")
    silent = sum(t.stream.completion_tokens is None for _, t in ok)
    if silent:
        found.append(f"{silent} answers told no usage: their tokens are chunks with text")
    short = sum(t.tokens < s.asked for s, t in ok)
    if short:
        found.append(f"{short} answers are shorter than asked for")
    tokens, chunks = sum(t.tokens for _, t in ok), sum(t.stream.chunks for _, t in ok)
    if chunks and tokens > 1.1 * chunks:
        found.append(f"{tokens / chunks:.1f} tokens per chunk: single gaps are of chunks, not of tokens")
    if summary.cut_off:
        found.append(f"{summary.cut_off} requests were cut off at the end: not good, and in no latency")
    return found
