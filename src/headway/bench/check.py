"""`headway check`: whether this machine can keep what the settings promise, before anybody is served.

check_measure   teaches the cost model     check_table   prints it
capacity        predicts from it           check         says what follows
"""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from headway.bench.capacity import Alone, Forecast, Limits, Shape, alone, largest
from headway.bench.check_measure import measure
from headway.core.clock import MonotonicClock
from headway.core.config import PromiseSettings, Settings
from headway.model.load import load_runner
from headway.scheduling.cost_model import NAMES, CostModel, StepLoad
from headway.scheduling.outlook import UNLOADED
from headway.serving.learned_costs import costs_path, read_costs, write_costs

FULL = 0.8  # share of the KV pool from which there is an alert
UNSURE = 0.25  # median error of predicted step times from which nothing here should be trusted

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Answer:
    """One of the five questions that the operator answers, and what the answer does."""

    setting: str
    value: float | str
    binds: bool
    meaning: str


@dataclass(frozen=True, slots=True)
class Measured:
    """What the cost model learned."""

    seconds: dict[str, float]  # by what costs them
    median_error: float | None  # of predicted step times, relative
    steps: int
    kept_in: str


@dataclass(frozen=True, slots=True)
class KvFit:
    """The KV pool beside what the largest load needs at most, in tokens."""

    pool_tokens: int
    needed_tokens: int
    streams: int  # at once, as many as the promise allows before the pool is asked
    share: float
    enough_mb: int  # engine.kv_memory_mb with which the share is no alert


@dataclass(frozen=True, slots=True)
class Report:
    fingerprint: str
    threads: int
    request: Shape
    answers: list[Answer]
    measured: Measured
    alone: Alone  # predicted
    load: Forecast  # predicted
    kv: KvFit
    alerts: list[str]
    problems: list[str]  # why not even one request is kept the promise

    def as_json(self) -> dict[str, object]:
        return asdict(self)


def check(path: Path, settings: Settings, shape: Shape, progress: Progress) -> Report:
    """Loads, measures for some seconds, keeps what was learned for `headway serve`, and predicts."""
    progress("loading the model")
    runner = load_runner(path, settings.engine)
    try:
        kept = costs_path(runner.info.fingerprint, settings.engine.threads)
        costs = read_costs(kept)
        scheduler = measure(runner, settings, costs, MonotonicClock(), progress).scheduler
        write_costs(kept, costs)
        limits = Limits(scheduler.capacity, scheduler.budget, scheduler.blocks.capacity, scheduler.context)
        return judge(costs, settings, shape, limits, runner.info.fingerprint, str(kept))
    finally:
        runner.close()


def judge(
    costs: CostModel, settings: Settings, shape: Shape, limits: Limits, fingerprint: str = "", kept: str = ""
) -> Report:
    """Everything that follows from the costs. Pure."""
    promise, one = settings.promise, alone(costs, shape, limits.step_tokens)
    free = largest(costs, promise, shape, limits, kv=False)
    kv = fit(limits, shape, max(1, free.peak_streams), settings.engine.kv_memory_mb)
    return Report(
        fingerprint=fingerprint,
        threads=settings.engine.threads,
        request=shape,
        answers=five_answers(promise),
        measured=Measured(dict(zip(NAMES, costs.coefficients, strict=True)), costs.median_error, costs.observed, kept),
        alone=one,
        load=largest(costs, promise, shape, limits),
        kv=kv,
        alerts=_alerts(costs, settings, shape, one, kv),
        problems=_problems(costs, promise, shape, limits, one, kv),
    )


def five_answers(promise: PromiseSettings) -> list[Answer]:
    """How soon, how evenly, how long, how long a wait, and what if the client leaves."""
    ttft, itl, total, queue = promise.ttft_ms, promise.itl_ms, promise.total_s, promise.queue_s
    too_many = "a stream too many is refused" if ttft else "but no stream is refused for it"
    said = [
        (
            f"What could not get its first token within {ttft:g} ms (a long prompt: {UNLOADED:g} times what it takes "
            "alone) is refused with 429 and told when to come back.",
            "First tokens take as long as they take: nothing is refused for the sake of time.",
        ),
        (
            f"Prompts are computed in pieces, so that a running stream gets a token every {itl:g} ms; {too_many}.",
            "Streams may pause: prompts are computed in pieces as large as a step allows.",
        ),
        (
            f"A request that is not done {total:g} s after it came, its time in the queue included, is ended.",
            "A request may take as long as it takes, unless it sets a limit itself.",
        ),
        (
            f"A request that has not begun after {queue:g} s in the queue is refused with 429.",
            "A request waits in the queue until it can begin.",
        ),
    ]
    values = {"ttft_ms": ttft, "itl_ms": itl, "total_s": total, "queue_s": queue}
    answers = [
        Answer(name, value, value > 0, given if value else absent)
        for (name, value), (given, absent) in zip(values.items(), said, strict=True)
    ]
    gone = "A request whose client goes away in the middle is cancelled at the next step, and its memory is freed."
    return [*answers, Answer("on_stream_drop", promise.on_stream_drop, True, gone)]


def fit(limits: Limits, shape: Shape, streams: int, kv_memory_mb: int) -> KvFit:
    needed = shape.total * streams
    enough = math.ceil(kv_memory_mb * needed / (FULL * limits.kv_tokens))
    return KvFit(limits.kv_tokens, needed, streams, needed / limits.kv_tokens, enough)


def _alerts(costs: CostModel, settings: Settings, shape: Shape, one: Alone, kv: KvFit) -> list[str]:
    alerts = []
    if kv.share > FULL:
        alerts.append(
            f"the KV pool would be {kv.share:.0%} full with {kv.streams} x {shape.total} tokens: sequences "
            f"would wait or be preempted. Set engine.kv_memory_mb = {kv.enough_mb}, or engine.max_sequences lower"
        )
    ttft_s = settings.promise.ttft_ms / 1e3
    if ttft_s and one.ttft_s > ttft_s:
        alerts.append(
            f"a prompt of {shape.prompt} tokens takes {_ms(one.ttft_s)} alone, more than ttft_ms: it counts as "
            f"long, and is promised {_ms(UNLOADED * one.ttft_s)}"
        )
    if settings.batching.policy != "continuous":
        alerts.append(
            f"the load is predicted for continuous batching, but batching.policy = {settings.batching.policy}"
        )
    if costs.median_error is not None and costs.median_error > UNSURE:
        alerts.append(
            f"predicted step times were wrong by {costs.median_error:.0%} (median): is the machine busy with "
            "something else?"
        )
    return alerts


def _problems(
    costs: CostModel, promise: PromiseSettings, shape: Shape, limits: Limits, one: Alone, kv: KvFit
) -> list[str]:
    """What cannot be kept even for a single request on an idle server, and what to change."""
    problems = []
    if shape.total > limits.context:
        problems.append(
            f"a request of {shape.total} tokens does not fit the context of {limits.context}: ask for fewer, or raise "
            "engine.context as far as the model goes"
        )
    elif shape.total > limits.kv_tokens:
        problems.append(
            f"a request of {shape.total} tokens does not fit the KV pool of {limits.kv_tokens}: set "
            f"engine.kv_memory_mb = {kv.enough_mb}"
        )
    if promise.itl_s is not None and one.gap_s > promise.itl_s:
        problems.append(
            f"itl_ms = {promise.itl_ms:g} cannot be kept: one decode step takes {_ms(one.gap_s)} for a single stream. "
            f"Promise at least {_round_up(one.gap_s * 1e3)}, or use more threads or a smaller model"
        )
    least = costs.predict(StepLoad(1, 1, 1))
    if promise.ttft_ms and least > promise.ttft_ms / 1e3:
        problems.append(
            f"ttft_ms = {promise.ttft_ms:g} cannot be kept: the first token of even the shortest prompt takes "
            f"{_ms(least)}. Promise at least {_round_up(one.ttft_s * 1e3)}, or use more threads or a smaller model"
        )
    if promise.total_s and one.total_s > promise.total_s:
        problems.append(
            f"total_s = {promise.total_s:g} cannot be kept: {shape.prompt} prompt and {shape.output} output tokens "
            f"take {one.total_s:.1f} s alone. Promise at least {math.ceil(one.total_s)}, or ask for fewer tokens"
        )
    return problems


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:,.1f} ms" if seconds < 0.1 else f"{seconds * 1e3:,.0f} ms"


def _round_up(ms: float) -> int:
    """With a margin, since a promise that is just kept is often broken."""
    return math.ceil(1.25 * ms)
