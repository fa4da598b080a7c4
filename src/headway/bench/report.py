"""Prints what was measured."""

import json
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from headway.bench.plot import Series, curve
from headway.bench.policies import POLICIES, Comparison
from headway.bench.step import ROWS, SAMPLED, StepReport


def print_steps(report: StepReport, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(report.as_json(), indent=2))
        return
    table = Table("what", "tokens/s", "limit", "share")
    for row in ROWS:
        if speed := report.speeds.get(row.name):
            figures = f"{speed.tokens_per_s:,.0f}", f"{speed.limit_tokens_per_s:,.0f}", f"{speed.share:.0%}"
            table.add_row(row.title, *figures)
    if report.sampling_share is not None:
        table.add_row(SAMPLED.title, "", "", f"{report.sampling_share:.1%}")
    machine = report.machine
    table.caption = (
        f"{machine.isa}, {machine.threads} threads: reads {machine.read_bytes_per_s / 1e9:.1f} GB/s, "
        f"{machine.int8_macs_per_s / 1e9:.0f} G int8 multiply-adds/s"
    )
    console = Console()
    console.print(table)
    for row in (*ROWS, SAMPLED):
        if reason := report.left_out.get(row.name):
            console.print(f"not measured: {row.title}: {reason}")


def print_policies(comparison: Comparison, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(comparison.as_json(), indent=2))
        return
    table = Table("requests/s", "policy", "generated tokens/s", "p50 latency", "p99 latency", box=SIMPLE_HEAD)
    for i, p in enumerate(comparison.points):
        ends = (i + 1) % len(POLICIES) == 0
        rate = f"{p.requests_per_s:.2f} ({p.load:.0%})" if i % len(POLICIES) == 0 else ""
        table.add_row(
            rate, p.policy, f"{p.tokens_per_s:,.0f}", f"{p.p50_s:.2f} s", f"{p.p99_s:.2f} s", end_section=ends
        )
    table.caption = _measured(comparison)
    Console().print(table)


def plot_policies(comparison: Comparison, path: Path) -> None:
    """Throughput against latency, a colour for each policy; p99 is dashed."""
    curves = []
    for colour, policy in enumerate(POLICIES):
        points = [point for point in comparison.points if point.policy == policy]
        speeds = [point.tokens_per_s for point in points]
        curves.append(Series(f"{policy} p50", speeds, [point.p50_s for point in points], colour))
        curves.append(Series(f"{policy} p99", speeds, [point.p99_s for point in points], colour, dashed=True))
    title = "Batching policies on one trace"
    curve(curves, "generated tokens/s", "latency, s", path, title=title, note=_measured(comparison))


def _measured(c: Comparison) -> str:
    loads = ", ".join(f"{point.load:.0%}" for point in c.points[:: len(POLICIES)])
    return (
        f"{c.requests} requests of the {c.trace} trace at {loads} of the {c.capacity_per_s:.2f} requests/s that "
        f"continuous batching serves; {c.seats} seats; medians of {c.rounds} rounds"
    )
