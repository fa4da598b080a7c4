"""The one trace that all policies serve: requests of given lengths, at times that a rate stretches."""

import random
from collections.abc import Sequence
from pathlib import Path

from headway.bench.load_arrivals import Arrival, poisson, read_trace
from headway.core.errors import InvalidRequest

MEAN_TOKENS = 75  # of a built-in request, prompt and output; a file's are scaled to it


def built_in(requests: int, seed: int = 0) -> list[Arrival]:
    """Poisson, one a second on average, very different lengths: 8 to 128 prompt tokens, 4 to 64 output tokens."""
    chance = random.Random(seed)
    times = poisson([(float("inf"), 1.0)], chance)
    return normalised(
        [Arrival(next(times).at, 8 << chance.randrange(5), 4 << chance.randrange(5)) for _ in range(requests)]
    )


def from_file(path: Path, requests: int, longest: int) -> list[Arrival]:
    """The first `requests` of a recorded trace. Lengths keep their proportions but are never scaled up."""
    rows = read_trace(path)[:requests]
    if len(rows) < 2:
        raise InvalidRequest(f"trace {path}: at least two requests are needed")
    mean = sum((row.input_tokens or 0) + (row.output_tokens or 0) for row in rows) / len(rows)
    scale = min(1.0, MEAN_TOKENS / mean)

    def scaled(tokens: int | None) -> int:
        return min(longest // 2, max(1, round((tokens or 0) * scale)))

    return normalised([Arrival(row.at, scaled(row.input_tokens), scaled(row.output_tokens)) for row in rows])


def normalised(trace: Sequence[Arrival]) -> list[Arrival]:
    """From time 0 on, at one request a second on average. Requests that all come at once stay so."""
    start = trace[0].at
    span = trace[-1].at - start
    factor = (len(trace) - 1) / span if span > 0 else 0.0
    return [Arrival((row.at - start) * factor, row.input_tokens, row.output_tokens) for row in trace]


def at_rate(trace: Sequence[Arrival], per_s: float) -> list[Arrival]:
    """The same requests, so many a second."""
    return [Arrival(row.at / per_s, row.input_tokens, row.output_tokens) for row in trace]
