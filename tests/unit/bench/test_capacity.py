"""The predicted load, checked against the engine that would have to carry it."""

import random
from collections import deque
from dataclasses import replace

import pytest

from headway.bench.capacity import Limits, Shape, Steady, alone, largest, steady
from headway.bench.load_arrivals import poisson
from headway.bench.policies import drive
from headway.bench.random_request import random_request
from headway.core.clock import ManualClock
from headway.core.config import EngineSettings, PromiseSettings, Settings, TuningSettings
from headway.core.events import StepMessage
from headway.model.fake_runner import FakeRunner, default_info
from headway.scheduling.cost_model import CostModel, StepLoad, attended
from headway.scheduling.engine import Engine

COSTS = CostModel((4e-3, 6e-4, 3e-5, 8e-4))
CHAT = PromiseSettings(ttft_ms=500.0, itl_ms=50.0)
LIMITS = Limits(sequences=256, step_tokens=512, kv_tokens=40_000, context=8192)
SHAPE = Shape(128, 128)


def test_alone_is_the_sum_of_its_steps() -> None:
    shape = Shape(600, 3)
    first = COSTS.predict(StepLoad(512, attended(0, 512), 0)) + COSTS.predict(StepLoad(88, attended(512, 88), 1))
    one = alone(COSTS, shape, 512)
    assert one.ttft_s == pytest.approx(first)
    assert one.total_s == pytest.approx(first + 2 * COSTS.predict(StepLoad(1, 601, 1)))
    assert one.gap_s == pytest.approx(COSTS.predict(StepLoad(1, 603, 1)))


def test_one_stream_more_would_break_what_it_says() -> None:
    load = largest(COSTS, CHAT, SHAPE, LIMITS)
    assert 3 < load.streams < load.peak_streams and load.ttft_s <= 0.5 and load.gap_s <= 0.05
    assert isinstance(steady(COSTS, CHAT, SHAPE, LIMITS, load.peak_streams), Steady)
    assert steady(COSTS, CHAT, SHAPE, LIMITS, load.peak_streams + 1) == load.bound_by
    assert load.requests_per_s * SHAPE.output == pytest.approx(load.tokens_per_s)


@pytest.mark.parametrize(
    ("promise", "limits", "bound"),
    [
        (PromiseSettings(itl_ms=30.0), LIMITS, "promise.itl_ms"),
        (PromiseSettings(itl_ms=200.0, ttft_ms=300.0), LIMITS, "promise.ttft_ms"),
        (PromiseSettings(itl_ms=0.0), replace(LIMITS, kv_tokens=100_000), "engine.max_step_tokens"),
        (PromiseSettings(itl_ms=0.0), replace(LIMITS, sequences=5), "engine.max_sequences"),
    ],
)
def test_it_says_what_bounds_the_load(promise: PromiseSettings, limits: Limits, bound: str) -> None:
    assert largest(COSTS, promise, SHAPE, limits).bound_by == bound


def test_less_asked_and_more_promised_time_mean_a_larger_load() -> None:
    rates = [largest(COSTS, CHAT, Shape(n, 128), LIMITS).requests_per_s for n in (32, 128, 512)]
    assert rates == sorted(rates, reverse=True)
    loads = [largest(COSTS, PromiseSettings(itl_ms=ms), SHAPE, LIMITS).streams for ms in (20, 50, 100, 200)]
    assert loads == sorted(loads) and loads[0] < loads[-1]


def test_long_prompts_with_short_answers_are_less_than_a_stream() -> None:
    load = largest(COSTS, CHAT, Shape(1000, 10), LIMITS)
    assert 0 < load.streams < load.peak_streams == 1
    assert 0 < load.requests_per_s < 1 / alone(COSTS, Shape(1000, 10), 512).total_s


def test_there_is_no_load_that_breaks_the_promise_from_the_first() -> None:
    load = largest(COSTS, PromiseSettings(itl_ms=2.0), SHAPE, LIMITS)
    assert load.streams == load.requests_per_s == 0.0 and load.bound_by == "promise.itl_ms"


def test_the_pool_bounds_it_too() -> None:
    load = largest(COSTS, CHAT, SHAPE, LIMITS)
    tight = replace(LIMITS, kv_tokens=5 * SHAPE.total + 5)
    small = largest(COSTS, CHAT, SHAPE, tight)
    assert small.peak_streams == 5 and small.bound_by == "kv" and small.requests_per_s < load.requests_per_s
    assert largest(COSTS, CHAT, SHAPE, tight, kv=False) == load
    assert largest(COSTS, CHAT, SHAPE, replace(LIMITS, kv_tokens=SHAPE.total - 1)).streams < 1


def first_tokens(rate: float, shape: Shape, requests: int) -> list[tuple[float, float]]:
    """Seconds to the first token and between the others, from the real engine with steps that take what COSTS says."""
    clock = ManualClock()
    info = default_info(blocks=2048, slots=128)
    first: dict[int, float] = {}
    last: dict[int, float] = {}

    def publish(worker: int, message: StepMessage) -> None:
        for emission in message.emissions:
            if emission.tokens:
                first.setdefault(emission.id, clock.now())
                last[emission.id] = clock.now()

    settings = Settings(
        engine=EngineSettings(threads=1, prefix_cache=False),
        promise=PromiseSettings(itl_ms=CHAT.itl_ms),
        tuning=TuningSettings(enabled=False),
    )
    runner = FakeRunner(info, clock=clock, step_time=lambda batch: COSTS.predict(StepLoad.of(batch)))
    engine = Engine(runner, settings, clock, epoch=0, publish=publish, costs=CostModel(COSTS.coefficients))
    arrivals = poisson([(float("inf"), rate)], random.Random(3))
    times = [next(arrivals).at for _ in range(requests)]
    made = deque(random_request(i, shape.prompt, shape.output, 1024, at) for i, at in enumerate(times))
    drive(engine, made, clock, clock.advance)
    return [(first[i] - at, (last[i] - first[i]) / (shape.output - 1)) for i, at in enumerate(times)]


@pytest.mark.parametrize("shape", [Shape(64, 48), Shape(16, 120), Shape(200, 20)])
def test_the_engine_carries_what_is_predicted_and_not_twice_as_much(shape: Shape) -> None:
    """Without admission, which would turn away the few that come at a bad time."""
    load = largest(COSTS, CHAT, shape, LIMITS)
    assert kept(load.requests_per_s, shape) > 0.8 > 0.7 > kept(2 * load.requests_per_s, shape)


def kept(rate: float, shape: Shape) -> float:
    """The share of requests for which the promise was kept."""
    seen = first_tokens(rate, shape, 200)
    return sum(ttft <= CHAT.ttft_ms / 1e3 and gap <= CHAT.itl_ms / 1e3 for ttft, gap in seen) / len(seen)
