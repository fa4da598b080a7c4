"""A burst of four times the capacity: who is refused is told when to come back, comes back then, and is let in."""

import math
import sys
from collections.abc import Sequence

from report import Benchmark, Need, number, percent, show, where
from server import Server
from traffic import Flow, flow, run

from headway.bench.load_options import Options
from headway.bench.load_stats import Spread
from headway.bench.plot import Series, curve

FACTOR, BURST_S = 4, 5
ACCEPTED = 0.9  # of second tries
LONGEST_TOLD_S = 60.0


def binned(times: Sequence[float], end: float, width: float) -> list[float]:
    """How many a second, in bins of `width` from 0 to `end`."""
    counts = [0] * math.ceil(end / width)
    for at in times:
        if 0 <= at < end:
            counts[int(at / width)] += 1
    return [count / width for count in counts]


def main() -> int:
    bench = Benchmark("burst", __doc__, takes_rate=True)
    rate, burst_s = bench.capacity(), 2 if bench.short else BURST_S
    options = Options(
        rate=rate,
        burst=f"{FACTOR}:{burst_s}",
        retry=1,
        warmup=1.0 if bench.short else 10.0,
        duration=4.0 if bench.short else 80.0,
        drain=2.0 if bench.short else LONGEST_TOLD_S + 20.0,
    )
    with Server("--workload", "chat") as server:
        result = run(flow(server, f"{rate:.2f} requests/s, {FACTOR}x for {burst_s} s, then half", options))
    s, again = result.summary, result.summary.retries
    told, resent = s.retry_after_s, again.ttft_from_resend_ms
    rows = [
        ("requests", str(s.requests)),
        ("served", str(s.ok)),
        ("refused on the first try", str(refused_once(result))),
        ("came back as told", str(again.second_sent)),
        ("let in then", f"{again.second_accepted} ({percent(again.second_accepted_share)})"),
        ("good of accepted", percent(s.good_of_accepted_share)),
        (
            "first token of those who came back, p99 ms",
            number(resent.p99 if resent else None),
        ),
    ]
    show(f"a burst of {FACTOR} x {rate:.2f}/s for {burst_s} s, then half", ("what", ""), rows)
    show("told to wait, seconds", ("", "count", "mean", "p50", "p90", "p99", "max"), [spread_row("Retry-After", told)])
    draw(bench, result, rate)
    data = {"rate_per_s": rate, "factor": FACTOR, "burst_s": burst_s, "waits_s": waits(result), "summary": s.as_json()}
    need = Need("second tries that were accepted", again.second_accepted_share, ACCEPTED, least=True)
    return bench.finish(data, [need])


def waits(result: Flow) -> list[float]:
    """What those refused on their first try were told, in the order in which they were due."""
    firsts = [s.tries[0] for s in result.run.samples if s.measured and s.tries]
    return [round(t.retry_after_s, 3) for t in firsts if t.refused and t.retry_after_s is not None]


def refused_once(result: Flow) -> int:
    return sum(bool(s.tries) and s.tries[0].refused for s in result.run.samples if s.measured)


def spread_row(name: str, s: Spread | None) -> tuple[str, ...]:
    values = (None,) * 5 if s is None else (s.mean, s.p50, s.p90, s.p99, s.max)
    return name, str(s.count if s else 0), *map(number, values)


def draw(bench: Benchmark, result: Flow, rate: float) -> None:
    width = 1.0 if bench.short else 5.0
    start = result.run.start
    samples = [s for s in result.run.samples if s.tries]
    came = [s.intended - start for s in samples]
    refused = [s.intended - start for s in samples if s.tries[0].refused]
    returned = [t.intended - start for s in samples for t in s.tries[1:] if t.started]
    let_in = [t.intended - start for s in samples for t in s.tries[1:] if t.accepted]
    end = max([result.end - start, *returned]) + width
    middles = [(i + 0.5) * width for i in range(math.ceil(end / width))]
    lines = (("came", came), ("refused", refused), ("came back", returned), ("came back and let in", let_in))
    series = [
        Series(name, middles, binned(times, end, width), colour, dashed=name == "came back", label="")
        for colour, (name, times) in enumerate(lines)
    ]
    how = f"Poisson, {rate:.2f}/s, then {FACTOR}x, then half; clients wait as told and try once more; {where()}"
    curve(series, "seconds", "requests/s", bench.plot, title="A burst, and who comes back", note=how)


if __name__ == "__main__":
    sys.exit(main())
