"""Self-tuning at work: the pace comes to within the promise, and nobody is refused for it."""

import random
from collections.abc import Iterator
from itertools import pairwise
from statistics import mean

import pytest
from rig import make_request, make_settings
from watch import Watched

from headway.core.config import PromiseSettings, TuningSettings
from headway.core.events import Finish
from headway.core.request import EngineRequest
from headway.core.runner import Batch
from headway.scheduling.cost_model import StepLoad
from headway.scheduling.tuning import WINDOW

GAP = 0.05


def slow_step(batch: Batch) -> float:
    """64 sequences take 85 ms, 34 take 50."""
    load = StepLoad.of(batch)
    return 1e-2 + 2e-4 * (load.tokens - load.sequences) + 1.17e-3 * load.sequences


def flood(rate: float) -> Iterator[EngineRequest]:
    rng, time, serial = random.Random(4), 0.0, 0
    while True:
        time += rng.expovariate(rate)
        serial += 1
        prompt = [rng.randrange(3, 900) for _ in range(rng.randint(8, 64))]
        out = rng.randint(60, 140)
        yield make_request(serial, prompt, arrival=time, max_tokens=out, ignore_eos=True)


def run(seconds: float, rate: float = 12.0, itl_ms: float = GAP * 1e3, **tuning: object) -> Watched:
    settings = make_settings(
        step_tokens=512,
        sequences=64,
        promise=PromiseSettings(itl_ms=itl_ms),
        tuning=TuningSettings(**tuning),  # type: ignore[arg-type]
    )
    watched = Watched(settings, step_time=slow_step)
    watched.play(flood(rate), seconds)
    return watched


def recent_gap(watched: Watched, since: float) -> float:
    gaps = [b - a for times in watched.times.values() for a, b in pairwise(times) if a > since]
    assert len(gaps) > 1000
    return mean(gaps)


def test_the_mean_gap_comes_to_within_the_promise() -> None:
    watched = run(60.0)
    assert recent_gap(watched, 30.0) <= 1.03 * GAP
    assert Finish.REFUSED not in {finish for _, finish in watched.ends.values()}
    load = watched.engine.load()
    assert load.waiting > 50 and load.tuning is not None and 20 < load.tuning.batch_limit < 40
    assert load.tuning.downs > 0
    for decision in watched.engine.tuner.decisions:
        assert decision.new != decision.old and "mean gap" in decision.why


def test_without_tuning_it_does_not() -> None:
    watched = run(60.0, enabled=False)
    assert recent_gap(watched, 30.0) > 1.25 * GAP
    tuning = watched.engine.load().tuning
    assert tuning is not None and (tuning.batch_limit, tuning.ups, tuning.downs) == (64, 0, 0)


@pytest.mark.parametrize("least", [4, 50])
def test_bounds_hold(least: int) -> None:
    watched = run(30.0, itl_ms=5.0, min_sequences=least)  # a promise that nobody can keep
    assert watched.engine.tuner.limit == least
    assert len(watched.scheduler.running) <= least


def test_it_grows_again_when_there_is_room() -> None:
    watched = run(20.0)
    small = watched.engine.tuner.limit
    assert small < 40
    watched.runner._step_time = lambda batch: slow_step(batch) / 3  # a core came back
    watched.play(_from(flood(40.0), 20.0), 20.0 + 60 * WINDOW * GAP / 3)
    assert watched.engine.tuner.limit > 1.5 * small
    assert recent_gap(watched, 25.0) <= GAP


def _from(source: Iterator[EngineRequest], begin: float) -> Iterator[EngineRequest]:
    for r in source:
        prompt = [r.id % 900 + 3] * (len(r.prompt) // 4)
        yield make_request(10**6 + r.id, prompt, arrival=begin + r.arrival, max_tokens=100, ignore_eos=True)


def test_who_waits_with_nothing_promised_is_let_in_up_to_the_slots() -> None:
    watched = run(20.0, itl_ms=0.0)
    assert watched.engine.tuner.limit == 64 and len(watched.scheduler.running) > 55
