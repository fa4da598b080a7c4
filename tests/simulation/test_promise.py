"""Overload on a manual clock: what is let in is served inside the promise, and the rest is told when to come back."""

import random
from itertools import pairwise
from statistics import mean

import pytest
from rig import Rig, make_request, make_settings

from headway.core.config import PromiseSettings
from headway.core.events import Finish
from headway.core.runner import Batch
from headway.model.fake_runner import default_info
from headway.scheduling.cost_model import StepLoad

PROMISE = PromiseSettings(ttft_ms=500.0, itl_ms=50.0)
SECONDS = 40.0
WARM_S = 5.0  # until the costs are learned


def step_time(batch: Batch) -> float:
    load = StepLoad.of(batch)
    return 4e-3 + 6e-4 * load.tokens + 3e-5 * load.context * 1e-3 + 2e-4 * load.sequences


class Crowd:
    """Poisson arrivals of `rate` a second; 64-192 tokens in and out."""

    def __init__(self, rate: float, seed: int, binding: bool) -> None:
        self.random = random.Random(seed)
        promise = PROMISE if binding else PROMISE.model_copy(update={"ttft_ms": 0.0})
        info = default_info(blocks=4096, context=512, slots=256, max_batch_tokens=512)
        settings = make_settings(step_tokens=512, sequences=256, promise=promise)
        self.rig = Rig(info, settings, step_time=step_time)
        self.rate = rate
        self.arrivals: dict[int, float] = {}
        self.times: dict[int, list[float]] = {}
        self.finished: dict[int, Finish] = {}

    def run(self) -> None:
        clock, engine = self.rig.clock, self.rig.engine
        due, serial = 0.0, 0
        publish = engine._publish

        def watch(worker: int, message) -> None:  # type: ignore[no-untyped-def]
            for emission in message.emissions:
                self.times[emission.id] += [clock.now()] * len(emission.tokens)
                if emission.finish is not None:
                    self.finished[emission.id] = emission.finish
            publish(worker, message)

        engine._publish = watch
        while clock.now() < SECONDS:
            while due <= clock.now():
                serial += 1
                prompt = [self.random.randrange(2, 90) for _ in range(self.random.randint(64, 192))]
                self.arrivals[serial], self.times[serial] = due, []
                out = self.random.randint(64, 192)
                self.rig.submit(make_request(serial, prompt, arrival=due, max_tokens=out, ignore_eos=True))
                due += self.random.expovariate(self.rate)
            if not engine.step():
                clock.advance(max(1e-4, min(due - clock.now(), 0.01)))

    def judge(self) -> tuple[float, float, float]:
        """Good requests per second, share of good among those that were let in and ended, share refused."""
        ended = {i: f for i, f in self.finished.items() if self.arrivals[i] > WARM_S}
        served = [i for i, f in ended.items() if f is not Finish.REFUSED]
        good = [i for i in served if self.good(i)]
        return len(good) / (SECONDS - WARM_S), len(good) / max(1, len(served)), 1 - len(served) / max(1, len(ended))

    def good(self, request: int) -> bool:
        times = self.times[request]
        gaps = [b - a for a, b in pairwise(times)]
        unloaded = 192 * 7e-4
        return times[0] - self.arrivals[request] <= 0.5 + 2 * unloaded and mean(gaps) <= 0.05


@pytest.mark.parametrize("seed", [1, 2])
def test_goodput_holds_under_overload(seed: int) -> None:
    at_capacity = judge(4.0, seed)
    assert at_capacity[1] >= 0.95 and at_capacity[2] < 0.05
    for factor in (2, 4):
        goodput, share, refused = judge(4.0 * factor, seed)
        assert goodput >= 0.9 * at_capacity[0]
        assert share >= 0.97
        assert refused > 0.2


def test_without_a_binding_promise_nothing_is_refused_and_everybody_suffers() -> None:
    _, share, refused = judge(20.0, 1, binding=False)
    assert refused == 0
    assert share < 0.5


def judge(rate: float, seed: int, binding: bool = True) -> tuple[float, float, float]:
    crowd = Crowd(rate, seed, binding)
    crowd.run()
    return crowd.judge()
