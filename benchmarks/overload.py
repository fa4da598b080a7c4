"""Capacity, then overload: as many good requests at twice and four times the load, and a quick no for the rest."""

import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass

from report import Benchmark, Need, note, number, percent, show, where
from server import Server
from traffic import flow, run

from headway.bench.load_options import Options
from headway.bench.plot import Series, curve

START_PER_S, STEP_PER_S = 3.0, 0.5
GOOD = 0.95  # of all requests, up to capacity
FACTORS = (1, 2, 4)
GOODPUT = {2: 0.90, 4: 0.80}  # of that at capacity
OF_ACCEPTED = 0.97
REFUSAL_MS = 50.0


@dataclass(frozen=True, slots=True)
class Point:
    """One rate, measured."""

    nominal_per_s: float
    offered_per_s: float  # that really arrived
    good_per_s: float
    good_of_all: float
    good_of_accepted: float | None
    ttft_p50_ms: float | None
    ttft_p99_ms: float | None
    itl_p99_ms: float | None
    refused: int
    refusal_p99_ms: float | None
    client_late_p99_ms: float | None


def search(holds: Callable[[float], bool], start: float, step: float) -> float | None:
    """The last rate that holds: going up from `start`, or, where that does not hold, the first going down."""
    rate = start
    if holds(rate):
        while holds(rate + step):
            rate += step
        return rate
    while rate - step > 0:
        rate -= step
        if holds(rate):
            return rate
    return None


def measure(rate: float, short: bool) -> Point:
    """On a server that nobody has been told to come back to."""
    options = Options(rate=rate, warmup=1.0 if short else 5.0, duration=2.0 if short else 40.0)
    with Server("--workload", "chat") as server:
        s = run(flow(server, f"{rate:g} requests/s", options)).summary
    point = Point(
        nominal_per_s=rate,
        offered_per_s=s.offered_per_s,
        good_per_s=s.goodput_per_s,
        good_of_all=s.goodput_share,
        good_of_accepted=s.good_of_accepted_share,
        ttft_p50_ms=s.ttft_ms.p50 if s.ttft_ms else None,
        ttft_p99_ms=s.ttft_ms.p99 if s.ttft_ms else None,
        itl_p99_ms=s.itl_ms.p99 if s.itl_ms else None,
        refused=sum(s.refusals.values()),
        refusal_p99_ms=s.refusal_ms.p99 if s.refusal_ms else None,
        client_late_p99_ms=s.loop_lag_ms.p99 if s.loop_lag_ms else None,
    )
    note(f"  {point.offered_per_s:.2f}/s arrived, {point.good_of_all:.1%} good, {point.refused} refused")
    return point


def needs(loads: dict[int, Point]) -> list[Need]:
    """What overload must leave of what was good at capacity."""
    found = []
    base = loads[1].good_per_s
    for factor, share in GOODPUT.items():
        point = loads[factor]
        kept = point.good_per_s / base if base else None
        found.append(Need(f"{factor}x: good/s, as a share of that at capacity", kept, share, least=True))
        found.append(Need(f"{factor}x: good of accepted", point.good_of_accepted, OF_ACCEPTED, least=True))
        found.append(Need(f"{factor}x: refusals, p99 ms", point.refusal_p99_ms, REFUSAL_MS))
    found.append(Need("1x: good of accepted", loads[1].good_of_accepted, OF_ACCEPTED, least=True))
    return found


def main() -> int:
    bench = Benchmark("overload", __doc__)
    points: dict[float, Point] = {}

    def holds(rate: float) -> bool:
        points[rate] = measure(rate, bench.short)
        if not bench.short and points[rate].good_of_all < GOOD:  # a moment without a core is not the server's limit
            again = measure(rate, bench.short)
            points[rate] = max(points[rate], again, key=lambda point: point.good_of_all)
        return len(points) < 2 if bench.short else points[rate].good_of_all >= GOOD

    measure(1.0, True)  # step times are learned, and kept for the next server
    nominal = search(holds, START_PER_S, STEP_PER_S)
    if nominal is None:
        raise SystemExit("no rate was found at which 95 % are good")
    loads = {factor: measure(nominal * factor, bench.short) for factor in FACTORS}
    capacity = points[nominal].offered_per_s
    show("capacity: the last rate at which 95 % are good", COLUMNS, [row("", p) for p in points.values()])
    show(f"overload: multiples of {capacity:.2f}/s", COLUMNS, [row(f"{f}x", p) for f, p in loads.items()])
    draw(bench, capacity, list(points.values()), loads)
    data = {
        "capacity_per_s": capacity,
        "capacity_nominal_per_s": nominal,
        "search": [asdict(p) for p in points.values()],
        "overload": {str(f): asdict(p) for f, p in loads.items()},
    }
    return bench.finish(data, needs(loads))


COLUMNS = (
    *("load", "arrived/s", "good/s", "good of all", "good of accepted", "first token p50", "p99 ms"),
    *("per token p99 ms", "refused", "refusals p99 ms"),
)


def row(name: str, p: Point) -> tuple[str, ...]:
    shares = percent(p.good_of_all), percent(p.good_of_accepted)
    times = number(p.ttft_p50_ms), number(p.ttft_p99_ms), number(p.itl_p99_ms)
    first = name or f"{p.nominal_per_s:g}/s"
    return (
        first,
        f"{p.offered_per_s:.2f}",
        f"{p.good_per_s:.2f}",
        *shares,
        *times,
        str(p.refused),
        number(p.refusal_p99_ms),
    )


def draw(bench: Benchmark, capacity: float, searched: list[Point], loads: dict[int, Point]) -> None:
    all_points = sorted((*searched, *loads.values()), key=lambda p: p.offered_per_s)
    x = [p.offered_per_s for p in all_points]
    good = Series("good", x, [p.good_per_s for p in all_points])
    offered = Series("offered", x, x, colour=1, dashed=True)
    title = f"Good requests under overload (capacity {capacity:.1f}/s)"
    curve([good, offered], "requests/s that arrived", "requests/s", bench.plot, title=title, note=f"{HOW}; {where()}")


HOW = "Poisson, 64-192 tokens in and out; good: first token <= 500 ms from when it was due, then <= 50 ms a token"

if __name__ == "__main__":
    sys.exit(main())
