"""Prints what was measured."""

import json

from rich.console import Console
from rich.table import Table

from headway.bench.policies import Outcome
from headway.bench.step import StepReport


def print_steps(report: StepReport, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(report.as_json(), indent=2))
        return
    table = Table("what", "tokens/s", "limit", "share")
    rows = {
        "decode, 1 sequence": report.decode_1,
        "decode, 8 sequences": report.decode_8,
        "decode, 32 sequences": report.decode_32,
        "prefill, 512 tokens": report.prefill_512,
    }
    for name, speed in rows.items():
        table.add_row(name, f"{speed.tokens_per_s:,.0f}", f"{speed.limit_tokens_per_s:,.0f}", f"{speed.share:.0%}")
    machine = report.machine
    table.caption = (
        f"{machine.isa}, {machine.threads} threads: reads {machine.read_bytes_per_s / 1e9:.1f} GB/s, "
        f"{machine.int8_macs_per_s / 1e9:.0f} G int8 multiply-adds/s"
    )
    Console().print(table)


def print_policies(outcomes: list[Outcome], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps([outcome.as_json() for outcome in outcomes], indent=2))
        return
    table = Table("policy", "generated tokens/s", "p50 latency", "p99 latency")
    for o in outcomes:
        table.add_row(o.policy, f"{o.tokens_per_s:,.0f}", f"{o.p50_s:.2f} s", f"{o.p99_s:.2f} s")
    Console().print(table)
