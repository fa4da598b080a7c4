"""Prints what a load run measured."""

from pathlib import Path

import msgspec
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from headway.bench.load import Outcome
from headway.bench.load_stats import Promise, Spread, Summary


def print_load(outcome: Outcome, promise: Promise, json: str | None) -> None:
    """A table on stdout; JSON in the file `json` too, or, for -, JSON alone on stdout."""
    if json is not None:
        text = msgspec.json.format(msgspec.json.encode({"options": outcome.options, **outcome.summary.as_json()}))
        if json == "-":
            print(text.decode())
            return
        Path(json).write_bytes(text + b"\n")
    console = Console()
    console.print(_latencies(outcome.summary))
    for line in _lines(outcome.summary, promise):
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    for warning in outcome.summary.warnings:
        console.print(f"[bold yellow]warning[/]     {warning}", highlight=False, soft_wrap=True)


def _latencies(summary: Summary) -> Table:
    names = ("ms", "count", "mean", "p50", "p90", "p95", "p99", "p99.9", "max")
    table = Table(*names, box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)  # fits 80 columns
    for column in table.columns:
        column.no_wrap, column.justify = True, "left" if column is table.columns[0] else "right"
    rows = {
        "first token": summary.ttft_ms,
        "per further token": summary.itl_ms,
        "single gaps": summary.gap_ms,
        "end to end": summary.e2e_ms,
        "refusals": summary.refusal_ms,
        "first token, resent": summary.retries.ttft_from_resend_ms,
        "  from first due": summary.retries.ttft_ms,
        "client sent late": summary.send_lag_ms,
        "client read late": summary.loop_lag_ms,
    }
    for name, spread in rows.items():
        if spread is not None:
            table.add_row(name, f"{spread.count:,}", *map(_ms, _values(spread)))
    table.caption = "from the intended send time; p99 needs 100 samples, p99.9 1,000"
    return table


def _values(s: Spread) -> tuple[float, ...]:
    return s.mean, s.p50, s.p90, s.p95, s.p99, s.p999, s.max


def _ms(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 1 else f"{value:.2f}"


def _lines(s: Summary, promise: Promise) -> list[str]:
    accepted = "" if s.good_of_accepted_share is None else f"; of accepted {s.good_of_accepted_share:.1%}"
    lines = [
        f"requests    {s.requests} in {s.window_s:.1f} s ({s.offered_per_s:.2f}/s): {s.ok} ok, {s.refused} refused, "
        f"{s.failed} failed, {s.cut_off} cut off; {s.warmup_requests} more in the warm-up",
        f"throughput  {s.requests_per_s:.2f} requests/s, {s.output_tokens_per_s:,.1f} output tokens/s",
        f"goodput     {s.good} requests = {s.goodput_share:.1%}, {s.goodput_per_s:.2f}/s{accepted} "
        f"(first token <= {promise.ttft_ms:g} ms, then <= {promise.itl_ms:g} ms a token)",
    ]
    if s.prompt_tokens is not None and s.output_tokens is not None:
        lines.append(f"tokens      {s.prompt_tokens.mean:.0f} in, {s.output_tokens.mean:.0f} out, on average")
    if s.refusals:
        told = s.retry_after_s
        waits = (
            "" if told is None else f"; Retry-After p50 {told.p50:.1f} s, p90 {told.p90:.1f} s, max {told.max:.1f} s"
        )
        none = f"; {s.refusals_without_retry_after} without Retry-After" if s.refusals_without_retry_after else ""
        lines.append(f"refusals    {_counts(s.refusals)}{waits}{none}")
    if s.retries.second_accepted_share is not None:
        r = s.retries
        lines.append(
            f"sent again  {r.second_accepted} of {r.second_sent} accepted on the second try = "
            f"{r.second_accepted_share:.1%}; {r.accepted} of {r.sent} over all further tries"
        )
    if s.errors:
        lines.append(f"errors      {_counts(s.errors)}")
    lines.extend(f"  {kind}: {text}" for kind, text in s.messages.items())
    return lines


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} x {name}" for name, count in counts.items())
