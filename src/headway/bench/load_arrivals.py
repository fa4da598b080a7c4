"""When requests arrive: Poisson, in bursts, or as a trace recorded them. A seed gives the same arrivals everywhere."""

import csv
import itertools
import math
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import msgspec

from headway.core.errors import InvalidRequest


@dataclass(frozen=True, slots=True)
class Arrival:
    """`at`: seconds from the start. A trace names the lengths too, in tokens."""

    at: float
    input_tokens: int | None = None
    output_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Burst:
    """`factor` times the rate for `seconds`, then half the rate: to the end, or until the next burst of a `period`."""

    factor: float
    seconds: float
    period: float | None = None

    @classmethod
    def parse(cls, text: str) -> "Burst":
        """FACTOR:SECONDS or FACTOR:SECONDS:PERIOD."""
        try:
            numbers = [float(part) for part in text.split(":")]
            burst = cls(*numbers) if 2 <= len(numbers) <= 3 else None
        except ValueError:
            burst = None
        if burst is None or min(numbers) <= 0 or not all(map(math.isfinite, numbers)):
            raise InvalidRequest(f"--burst: {text!r} is not FACTOR:SECONDS or FACTOR:SECONDS:PERIOD")
        if burst.period is not None and burst.period <= burst.seconds:
            raise InvalidRequest("--burst: the period must be longer than the burst")
        return burst

    def pieces(self, rate: float, start: float) -> Iterator[tuple[float, float]]:
        """(until, rate): the plain rate up to `start`, when the first burst begins."""
        yield start, rate
        for number in itertools.count():
            begin = start + number * (self.period or 0.0)
            yield begin + self.seconds, rate * self.factor
            yield begin + (self.period or math.inf), rate / 2


def poisson(pieces: Iterable[tuple[float, float]], rng: random.Random) -> Iterator[Arrival]:
    """A Poisson process whose rate (per second) is constant up to each `until` (seconds)."""
    now, owed = 0.0, rng.expovariate(1.0)  # `owed`: expected arrivals until the next
    for until, rate in pieces:
        while now + owed / rate <= until:
            now += owed / rate
            yield Arrival(now)
            owed = rng.expovariate(1.0)
        owed -= (until - now) * rate
        now = until


def read_trace(path: Path, *, speed: float = 1.0, length_scale: float = 1.0) -> list[Arrival]:
    """Azure's CSV or Mooncake's JSON lines. `speed` 2 replays twice as fast; lengths are scaled, to 1 at least."""

    def scaled(tokens: float) -> int:
        return max(1, round(tokens * length_scale))

    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = list(_azure(file) if path.suffix.lower() == ".csv" else _mooncake(file))
    except (KeyError, TypeError, ValueError, msgspec.DecodeError) as error:
        raise InvalidRequest(f"trace {path}: neither Azure's CSV nor Mooncake's JSON lines ({error!r})") from None
    except OSError as error:
        raise InvalidRequest(f"trace {path}: {error.strerror}") from None
    if not rows:
        raise InvalidRequest(f"trace {path} is empty")
    rows.sort(key=lambda row: row[0])
    start = rows[0][0]
    return [Arrival((at - start) / speed, scaled(before), scaled(after)) for at, before, after in rows]


def _azure(file: Iterable[str]) -> Iterator[tuple[float, int, int]]:
    for row in csv.DictReader(file):
        at = datetime.fromisoformat(row["TIMESTAMP"] + "+00:00").timestamp()
        yield at, int(row["ContextTokens"]), int(row["GeneratedTokens"])


def _mooncake(file: Iterable[str]) -> Iterator[tuple[float, int, int]]:
    for line in filter(str.strip, file):
        row = msgspec.json.decode(line)
        yield row["timestamp"] / 1000, row["input_length"], row["output_length"]
