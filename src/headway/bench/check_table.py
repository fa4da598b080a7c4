"""Prints what `headway check` found."""

import json

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from headway.bench.check import Report


def print_check(report: Report, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(report.as_json(), indent=2))
        return
    console = Console()
    table = Table("", "", "", box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_header=False)
    table.columns[0].no_wrap = table.columns[1].no_wrap = True
    for answer in report.answers:
        value = answer.value if isinstance(answer.value, str) else f"{answer.value:g}"
        table.add_row(f"{answer.setting} = {value}", "binds" if answer.binds else "-", answer.meaning)
    console.print(table)
    for line in _lines(report):
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    for text in report.alerts:
        console.print(f"[bold yellow]alert[/]       {text}", highlight=False, soft_wrap=True)
    for text in report.problems:
        console.print(f"[bold red]impossible[/]  {text}", highlight=False, soft_wrap=True)
    if not report.problems:
        console.print("[bold green]ok[/]          the promise can be kept", highlight=False)


def _lines(report: Report) -> list[str]:
    kv, one, request, measured = report.kv, report.alone, report.request, report.measured
    costs = ", ".join(f"{s * 1e3:.3f} a {name.replace('_', ' ')}" for name, s in measured.seconds.items())
    error = "" if measured.median_error is None else f"; predictions {measured.median_error:.0%} off (median)"
    return [
        f"measured    ms: {costs}{error}; kept, serve starts from it",
        f"request     {request.prompt} prompt and {request.output} output tokens; alone: first token after "
        f"{one.ttft_s * 1e3:,.0f} ms, then {one.gap_s * 1e3:.1f} ms a token, {one.total_s:.2f} s in all",
        f"load        {_load(report)}",
        f"KV pool     {kv.pool_tokens:,} tokens; {kv.streams} x {request.total} needed at most = {kv.needed_tokens:,}, "
        f"{kv.share:.0%}",
    ]


def _load(report: Report) -> str:
    load = report.load
    bound = "the KV pool" if load.bound_by == "kv" else load.bound_by
    if not load.streams:
        return f"predicted: none beyond a request now and then; bound by {bound}"
    return (
        f"predicted: {load.requests_per_s:.2f} requests/s, {load.tokens_per_s:,.0f} tokens/s, {load.streams:.1f} "
        f"streams (at times {load.peak_streams}); on average the first token after {load.ttft_s * 1e3:,.0f} ms, then "
        f"{load.gap_s * 1e3:.0f} ms a token; bound by {bound}"
    )
