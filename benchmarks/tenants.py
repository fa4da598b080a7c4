"""Two tenants of equal weight: one sends ten times its share, and the other does not notice."""

import asyncio
import sys

from report import Benchmark, Need, number, percent, show, where
from server import Server
from traffic import Flow, flow, run

from headway.bench.load_options import Options
from headway.bench.load_stats import Summary
from headway.bench.plot import bars

SMALL = 0.25  # of capacity
SHARE = 0.5  # of capacity, that each of the two is due
FLOOD = 10  # times its share that big sends
LEAD_S = 5.0  # big has filled the server when small's first request comes
GOOD = 0.99  # of small's requests
TENANTS = ("small", "big")
KEYS = "".join(f'[[keys]]\nkey = "key-of-{tenant}"\ntenant = "{tenant}"\n' for tenant in TENANTS)


def compete(what: str, capacity: float, keys: dict[str, str], short: bool) -> dict[str, Flow]:
    """On a server that nobody has been told to come back to."""
    with Server("--workload", "chat", config=KEYS, key=keys["big"]) as server:
        return run(both(server, what, capacity, keys, 3.0 if short else 60.0))


async def both(server: Server, what: str, capacity: float, keys: dict[str, str], duration: float) -> dict[str, Flow]:
    """Both over the same seconds, each with its key."""
    rates = {"small": SMALL * capacity, "big": FLOOD * SHARE * capacity}
    late = {"small": LEAD_S, "big": 0.0}
    flows = [
        flow(
            server,
            f"{what}: {tenant} {rate:.2f}/s",
            Options(
                rate=rate,
                warmup=LEAD_S - late[tenant],
                duration=duration,
                seed=seed,
                api_key=keys[tenant],
            ),
            late[tenant],
        )
        for seed, (tenant, rate) in enumerate(rates.items())
    ]
    return dict(zip(rates, await asyncio.gather(*flows), strict=True))


def main() -> int:
    bench = Benchmark("tenants", __doc__, takes_rate=True)
    capacity = bench.capacity()
    own = {tenant: f"key-of-{tenant}" for tenant in TENANTS}
    shared = dict.fromkeys(TENANTS, own["big"])
    runs = {
        "a key each": compete("a key each", capacity, own, bench.short),
        "one key for both": compete("one key for both", capacity, shared, bench.short),
    }
    rows = [row(what, tenant, f.summary) for what, flows in runs.items() for tenant, f in flows.items()]
    show(f"capacity {capacity:.2f}/s", COLUMNS, rows)
    shares = {what: [100 * flows[tenant].summary.goodput_share for tenant in TENANTS] for what, flows in runs.items()}
    how = (
        f"Poisson: small {SMALL:g} and big {FLOOD * SHARE:g} times the capacity of {capacity:.2f}/s; good: first token "
        f"<= 500 ms, then <= 50 ms a token; {where()}"
    )
    bars(
        TENANTS, shares, "good requests, % of all", bench.plot, title="A neighbour that floods", note=how,
        grey="one key for both",
    )  # fmt: skip
    data = {
        "capacity_per_s": capacity,
        "runs": {what: {t: f.summary.as_json() for t, f in flows.items()} for what, flows in runs.items()},
    }
    small = runs["a key each"]["small"].summary
    return bench.finish(data, [Need("small's good requests, of all", small.goodput_share, GOOD, least=True)])


COLUMNS = (
    *("keys", "tenant", "arrived/s", "good/s", "good of all", "good of accepted", "refused"),
    *("first token p50", "p99 ms", "refusals p99 ms"),
)


def row(what: str, tenant: str, s: Summary) -> tuple[str, ...]:
    first = (s.ttft_ms.p50, s.ttft_ms.p99) if s.ttft_ms else (None, None)
    return (
        what,
        tenant,
        f"{s.offered_per_s:.2f}",
        f"{s.goodput_per_s:.2f}",
        percent(s.goodput_share),
        percent(s.good_of_accepted_share),
        str(s.refused),
        *map(number, first),
        number(s.refusal_ms.p99 if s.refusal_ms else None),
    )


if __name__ == "__main__":
    sys.exit(main())
