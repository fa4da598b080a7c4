"""The options of `headway bench load`, and what they make."""

import random
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from headway.bench.load_arrivals import Arrival, Burst, poisson, read_trace
from headway.bench.load_run import Pacing
from headway.bench.load_stats import Promise
from headway.bench.load_workload import Workload, parse_range, read_prompts
from headway.core.errors import InvalidRequest

DEFAULT_S = 60.0  # a run with no other bound


@dataclass(frozen=True, slots=True)
class Options:
    """The command line, as it was spelled. Times are in the unit of their name."""

    url: str = "http://127.0.0.1:8000"
    model: str | None = None  # None: the first the server lists
    api_key: str | None = None
    endpoint: str = "chat"
    rate: float | None = None
    burst: str | None = None
    trace: str | None = None
    length_scale: float = 1.0
    clients: int | None = None
    requests: int | None = None
    duration: float | None = None
    warmup: float = 0.0
    drain: float = 30.0
    timeout: float = 120.0
    input_tokens: str = "64-192"
    output_tokens: str = "64-192"
    prompts: Path | None = None
    ignore_eos: bool | None = None
    extra: str = "{}"
    promise: Promise = field(default_factory=Promise)
    retry: int = 0
    connections: int = 1024
    seed: int = 0


def make_pacing(options: Options) -> Pacing:
    """Exactly one of rate, trace and clients drives the load; a burst modulates the rate."""
    given = [name for name in ("rate", "trace", "clients") if getattr(options, name) is not None]
    if len(given) != 1:
        raise InvalidRequest("give exactly one of --rate, --trace and --clients")
    if options.burst is not None and options.rate is None:
        raise InvalidRequest("--burst needs --rate")
    for name in ("rate", "clients", "requests", "duration", "timeout", "length_scale", "connections"):
        value = getattr(options, name)
        if value is not None and not value > 0:
            raise InvalidRequest(f"--{name.replace('_', '-')} must be above 0")
    unbounded = options.requests is None and options.duration is None and options.trace is None
    return Pacing(
        arrivals=None if options.clients is not None else iter(_arrivals(options)),
        clients=options.clients or 1,
        requests=options.requests,
        duration_s=DEFAULT_S if unbounded else options.duration,
        warmup_s=options.warmup,
        drain_s=options.drain,
        timeout_s=options.timeout,
        retries=options.retry,
    )


def _arrivals(options: Options) -> Iterable[Arrival]:
    if options.trace is not None:
        path, speed = options.trace, 1.0
        head, _, tail = options.trace.rpartition(":")
        with suppress(ValueError):
            path, speed = (head, float(tail)) if head else (path, speed)
        if not speed > 0:
            raise InvalidRequest("--trace: the speed must be above 0")
        return read_trace(Path(path), speed=speed, length_scale=options.length_scale)
    assert options.rate is not None
    burst = Burst.parse(options.burst) if options.burst is not None else None
    pieces = [(float("inf"), options.rate)] if burst is None else burst.pieces(options.rate, options.warmup)
    return poisson(pieces, random.Random(options.seed))


def make_workload(options: Options) -> Workload:
    if options.endpoint not in ("chat", "completions"):
        raise InvalidRequest("--endpoint must be chat or completions")
    try:
        extra = msgspec.json.decode(options.extra, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise InvalidRequest(f"--extra is not a JSON object: {error}") from None
    return Workload(
        model=options.model or "",
        chat=options.endpoint == "chat",
        input_tokens=parse_range(options.input_tokens, "--input-tokens"),
        output_tokens=parse_range(options.output_tokens, "--output-tokens"),
        prompts=read_prompts(options.prompts) if options.prompts else (),
        ignore_eos=options.prompts is None if options.ignore_eos is None else options.ignore_eos,
        extra=extra,
        seed=options.seed,
    )
