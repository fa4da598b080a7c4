"""The largest load that keeps the promise, predicted from what steps cost. Pure arithmetic; nothing is run.

Streams that arrive, decode and leave at an even pace: B of them make B tokens a step, so with O tokens for each request
B / O requests end in every step, and as many begin, whose P prompt tokens must be computed in between. Prompts form a
queue (M/D/1: random arrivals, equal work), which the time that a step has left beside its decodes serves. Arrivals come
at random, so there are often more streams than on average: the promise must hold then, too.
"""

import math
from dataclasses import dataclass
from itertools import chain
from typing import Literal

from headway.core.config import PromiseSettings
from headway.scheduling.cost_model import CostModel, StepLoad, attended
from headway.scheduling.outlook import UNLOADED
from headway.scheduling.pace import MARGIN

BUSY = 0.95  # share of the room for prompts that can be used before the queue for it grows without end
LATE = 0.05  # of the first tokens may come later than promised
PEAK = 2.5  # standard deviations (of Poisson's distribution) by which streams exceed their average
PARTS = 100  # of one stream, where it is less than one

Bound = Literal["promise.itl_ms", "promise.ttft_ms", "engine.max_sequences", "engine.max_step_tokens", "kv"]


@dataclass(frozen=True, slots=True)
class Shape:
    """What a typical request is, in tokens."""

    prompt: int
    output: int

    @property
    def total(self) -> int:
        return self.prompt + self.output


@dataclass(frozen=True, slots=True)
class Limits:
    """What the engine has room for."""

    sequences: int  # at once
    step_tokens: int
    kv_tokens: int
    context: int


@dataclass(frozen=True, slots=True)
class Alone:
    """One request on an idle server."""

    ttft_s: float
    gap_s: float  # its longest: at its end
    total_s: float


@dataclass(frozen=True, slots=True)
class Forecast:
    """A load that stays within what is promised; `bound_by` is what one stream more than `peak_streams` would break."""

    streams: float  # on average; 0: nothing beyond a request now and then
    peak_streams: int  # at once, when many happen to come together
    requests_per_s: float
    tokens_per_s: float  # generated
    gap_s: float  # between two tokens of a stream, on average
    ttft_s: float  # on average
    bound_by: Bound


def alone(costs: CostModel, shape: Shape, step_tokens: int) -> Alone:
    """A prompt is computed in pieces of `step_tokens`; its last one makes the first token."""
    first = 0.0
    for start in range(0, shape.prompt, step_tokens):
        count = min(step_tokens, shape.prompt - start)
        last = start + count == shape.prompt
        first += costs.predict(StepLoad(count, attended(start, count), int(last)))
    middle = costs.predict(StepLoad(1, shape.prompt + shape.output // 2, 1))
    return Alone(first, costs.predict(StepLoad(1, shape.total, 1)), first + (shape.output - 1) * middle)


def largest(costs: CostModel, promise: PromiseSettings, shape: Shape, limits: Limits, kv: bool = True) -> Forecast:
    """The largest load that keeps the promise; without `kv`, as if the KV pool held any number of streams."""
    fits = limits.kv_tokens // shape.total if kv else limits.sequences
    bound: Bound = "kv" if fits < limits.sequences else "engine.max_sequences"
    peak = 0.0
    for streams in chain((n / PARTS for n in range(1, PARTS)), range(1, min(limits.sequences, fits) + 1)):
        found = steady(costs, promise, shape, limits, streams)
        if not isinstance(found, Steady):
            bound = found
            break
        peak = float(streams)
    average = _average(peak) if promise.itl_ms or promise.ttft_ms else peak  # unpromised, who comes too soon waits
    kept = steady(costs, promise, shape, limits, average) if average else None
    if not isinstance(kept, Steady):
        one = alone(costs, shape, limits.step_tokens)
        return Forecast(0.0, 0, 0.0, 0.0, one.gap_s, one.ttft_s, bound)
    rate = average / (shape.output * kept.step_s)
    return Forecast(average, math.ceil(peak), rate, rate * shape.output, kept.step_s, kept.ttft_s, bound)


def _average(peak: float) -> float:
    """What seldom comes to more than `peak`: average + PEAK * sqrt(average) = peak; too shy below one stream."""
    return max(peak / 4, (math.sqrt(peak + PEAK * PEAK / 4) - PEAK / 2) ** 2)


@dataclass(frozen=True, slots=True)
class Steady:
    """What so many streams meet."""

    step_s: float
    ttft_s: float


def steady(costs: CostModel, promise: PromiseSettings, shape: Shape, limits: Limits, streams: float) -> Steady | Bound:
    """So many streams, on average over a while, or what they break."""
    empty = costs.predict(StepLoad(0, 0, 0))
    stream_s = costs.predict(StepLoad(1, shape.prompt + shape.output // 2, 1)) - empty
    decode_s = empty + max(1.0, streams) * stream_s  # less than one: sometimes one, and no steps in between
    token_s = max(1e-9, (costs.predict(StepLoad(shape.prompt, attended(0, shape.prompt), 0)) - empty) / shape.prompt)
    room = limits.step_tokens - max(1.0, streams)  # for prompt tokens in a step
    bound: Bound = "engine.max_step_tokens"
    if promise.itl_s is not None and (fits := (MARGIN * promise.itl_s - decode_s) / token_s) < room:
        room, bound = fits, "promise.itl_ms"
    needed = streams * shape.prompt / shape.output
    if room < 1 or needed > BUSY * room:
        return bound
    step_s = decode_s + needed * token_s
    busy = needed / room
    service_s = shape.prompt / room * (decode_s + room * token_s)
    wait_s = service_s / (2 * (1 - busy))  # of those that do not find the queue empty
    # the step under way when it comes, and its own pieces, each with the decodes beside it
    unqueued_s = step_s + shape.prompt * token_s + math.ceil(shape.prompt / room) * decode_s
    allowed = max(promise.ttft_ms / 1e3, UNLOADED * alone(costs, shape, limits.step_tokens).ttft_s)
    if promise.ttft_ms and unqueued_s + wait_s * max(0.0, math.log(busy / LATE)) > allowed:
        return "promise.ttft_ms"
    return Steady(step_s, unqueued_s + wait_s * busy)
