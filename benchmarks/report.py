"""What all benchmarks share around measuring: options, progress, tables, what is required, files."""

import argparse
import json
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from headway.bench.plot import check_path

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "docs" / "promise"
SMOKE = ROOT / "build" / "benchmarks"  # a quick run is no result


@dataclass(frozen=True, slots=True)
class Need:
    """What a figure must be: at most `bound`, or at least. None: there was nothing to measure, which is a miss."""

    what: str
    value: float | None
    bound: float
    least: bool = False

    @property
    def met(self) -> bool:
        if self.value is None:
            return False
        return self.value >= self.bound if self.least else self.value <= self.bound


class Benchmark:
    """One script's options and results."""

    def __init__(self, name: str, doc: str, *, takes_rate: bool = False) -> None:
        parser = argparse.ArgumentParser(prog=f"benchmarks/{name}.py", description=doc)
        parser.add_argument("--short", action="store_true", help="a quick look; results go to build/benchmarks")
        parser.add_argument("--out", type=Path, help="folder of the results; default: docs/promise")
        if takes_rate:
            parser.add_argument("--rate", type=float, help="capacity, requests/s; default: what overload.py measured")
        options = parser.parse_args()
        self.name = name
        self.short: bool = options.short
        self._rate: float | None = getattr(options, "rate", None)
        self._out: Path = options.out or (SMOKE if self.short else RESULTS)
        self._out.mkdir(parents=True, exist_ok=True)
        check_path(self.plot)
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the server is stopped, too

    @property
    def plot(self) -> Path:
        return self._out / f"{self.name}.svg"

    def capacity(self) -> float:
        """Requests per second that the server can carry."""
        if self._rate is not None:
            return self._rate
        path = RESULTS / "overload.json"
        if not path.is_file():
            raise SystemExit("give --rate, or run benchmarks/overload.py first")
        return float(json.loads(path.read_text())["capacity_per_s"])

    def finish(self, data: dict[str, Any], needs: Sequence[Need]) -> int:
        """Writes the JSON, says what is met; the exit code: 1 if anything is missed."""
        stated = [asdict(need) | {"met": need.met} for need in needs]
        whole = {"benchmark": self.name, "short": self.short, "machine": machine(), **data, "required": stated}
        path = self._out / f"{self.name}.json"
        path.write_text(json.dumps(whole, indent=2) + "\n")
        rows = [
            (need.what, number(need.value), f"{'>=' if need.least else '<='} {number(need.bound)}", _verdict(need))
            for need in needs
        ]
        show("required", ("what", "measured", "bound", ""), rows)
        note(f"wrote {path} and {self.plot.name}")
        return 0 if all(need.met for need in needs) else 1


def _verdict(need: Need) -> str:
    return "met" if need.met else "MISSED"


def show(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table on stdout."""
    table = Table(*columns, title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for column in table.columns[1:]:
        column.justify = "right"
    for row in rows:
        table.add_row(*row)
    Console(width=None if sys.stdout.isatty() else 140).print(table)


def note(text: str) -> None:
    """Progress, on stderr."""
    print(text, file=sys.stderr, flush=True)


def number(value: float | None) -> str:
    """Three or four digits."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.3g}"


def percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def machine() -> dict[str, object]:
    return {"cpu": _cpu(), "cores": len(os.sched_getaffinity(0)), "date": date.today().isoformat()}


def where(*, client: bool = True) -> str:
    """For the small print of a plot."""
    cores = f"{_cpu()}, {len(os.sched_getaffinity(0))} cores"
    return f"{cores}, the client on them too" if client else cores


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return "unknown"
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")
