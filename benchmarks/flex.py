"""Flex fills what interactive requests leave: they notice next to nothing, and the engine computes nearly as much."""

import asyncio
import sys
from dataclasses import asdict, dataclass

from report import Benchmark, Need, number, percent, show, where
from server import Server
from traffic import Flow, Window, flow, run, watch

from headway.bench.load_options import Options
from headway.bench.load_stats import Spread
from headway.bench.plot import bars

INTERACTIVE = 0.5  # of capacity
CLIENTS = 64
GAP_MS = 60.0  # 1.2 x itl_ms, p99 of single gaps
COMPUTED = 0.9  # of flex alone


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds. Interactive load begins when flex has run for `lead`."""

    lead: float
    warmup: float
    duration: float


@dataclass(frozen=True, slots=True)
class Phase:
    name: str
    interactive: Flow | None
    flex: Flow | None
    window: Window


async def phase(server: Server, name: str, rate: float, times: Times, interactive: bool, flex: bool) -> Phase:
    """All that runs in it is measured over the same seconds."""
    lead = times.lead if flex else 0.0
    begin = lead + times.warmup
    background = Options(
        clients=CLIENTS, extra='{"service_tier": "flex"}', warmup=begin, duration=times.duration, drain=1.0
    )
    watched = Options(rate=rate, warmup=times.warmup, duration=times.duration)
    async with asyncio.TaskGroup() as group:
        window = group.create_task(watch(server, begin, times.duration))
        behind = group.create_task(flow(server, f"{name} (flex)", background)) if flex else None
        front = group.create_task(flow(server, f"{name} (interactive)", watched, lead)) if interactive else None
    return Phase(name, front.result() if front else None, behind.result() if behind else None, window.result())


def main() -> int:
    bench = Benchmark("flex", __doc__, takes_rate=True)
    rate = INTERACTIVE * bench.capacity()
    times = Times(1.0, 1.0, 3.0) if bench.short else Times(10.0, 5.0, 40.0)
    with Server("--workload", "chat") as server:
        alone = run(phase(server, "interactive alone", rate, times, interactive=True, flex=False))
        flex = run(phase(server, "flex alone", rate, times, interactive=False, flex=True))
        both = run(phase(server, "both", rate, times, interactive=True, flex=True))
    phases = (alone, flex, both)
    show(f"interactive {rate:.2f}/s, flex from {CLIENTS} clients", COLUMNS, [row(p) for p in phases])
    before, after = ttft_p99(alone), ttft_p99(both)
    rise = None if before is None or after is None else (after - before) / both.window.step_ms
    print(f"interactive first token p99 rose by {number(rise)} steps of {both.window.step_ms:.1f} ms")
    shares = both.window.tokens_per_s / flex.window.tokens_per_s
    speeds = {"computed tokens/s": [p.window.tokens_per_s for p in phases]}
    how = f"interactive: Poisson {rate:.2f}/s; flex: {CLIENTS} clients; 64-192 tokens in and out; {where()}"
    bars([p.name for p in phases], speeds, "computed tokens/s", bench.plot, title="Flex fills the gaps", note=how)
    data = {"rate_per_s": rate, "ttft_rise_steps": rise, "phases": [as_json(p) for p in phases]}
    gap = both.interactive.summary.gap_ms if both.interactive else None
    needs = [
        Need("interactive gaps beside flex, p99 ms", gap.p99 if gap else None, GAP_MS),
        Need("computed tokens/s with both, as a share of flex alone", shares, COMPUTED, least=True),
    ]
    return bench.finish(data, needs)


COLUMNS = (
    *("load", "interactive", "good", "first token p50", "p99 ms", "gaps p50", "p99 ms"),
    *("flex served", "flex refused", "computed tokens/s", "step ms"),
)


def row(p: Phase) -> tuple[str, ...]:
    s = p.interactive.summary if p.interactive else None
    first, gaps = (s.ttft_ms, s.gap_ms) if s else (None, None)
    mine = (str(s.requests), percent(s.goodput_share)) if s else ("-", "-")
    spreads = [number(value) for spread in (first, gaps) for value in _ends(spread)]
    f = p.flex.summary if p.flex else None
    theirs = (str(f.ok), str(sum(f.refusals.values()))) if f else ("-", "-")
    return p.name, *mine, *spreads, *theirs, number(p.window.tokens_per_s), number(p.window.step_ms if p.flex else None)


def _ends(spread: Spread | None) -> tuple[float | None, float | None]:
    return (spread.p50, spread.p99) if spread else (None, None)


def ttft_p99(p: Phase) -> float | None:
    return _ends(p.interactive.summary.ttft_ms)[1] if p.interactive else None


def as_json(p: Phase) -> dict[str, object]:
    flows = {"interactive": p.interactive, "flex": p.flex}
    summaries = {name: f.summary.as_json() if f else None for name, f in flows.items()}
    return {"name": p.name, "window": asdict(p.window), **summaries}


if __name__ == "__main__":
    sys.exit(main())
