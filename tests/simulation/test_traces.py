"""Arrival traces of thousands of requests in virtual time, on small resources, with every step checked."""

import random
from collections.abc import Iterator

import pytest
from rig import Rig, make_request, make_settings

from headway.core.config import QueueSettings
from headway.core.events import Finish
from headway.core.lane import Lane
from headway.core.request import EngineRequest
from headway.model.fake_runner import default_info


def gaps(kind: str, rng: random.Random) -> Iterator[float]:
    while True:
        if kind == "poisson":
            yield rng.expovariate(60.0)
        elif kind == "bursts":
            yield 0.0 if rng.random() < 0.95 else rng.expovariate(2.0)
        else:
            yield min(5.0, 0.003 * rng.paretovariate(1.1))


def trace(kind: str, count: int, seed: int) -> list[EngineRequest]:
    rng = random.Random(seed)
    time, requests = 0.0, []
    shared = [[rng.randint(3, 900) for _ in range(64)] for _ in range(4)]
    for serial, gap in zip(range(count), gaps(kind, rng), strict=False):
        time += gap
        body = [rng.randint(3, 900) for _ in range(min(150, int(4 * rng.paretovariate(1.2))))]
        requests.append(
            make_request(
                serial,
                rng.choice(shared)[: rng.choice([0, 20, 64])] + body,
                arrival=time,
                max_tokens=min(60, int(3 * rng.paretovariate(1.1))),
                deadline=time + rng.uniform(0.0, 2.0) if rng.random() < 0.2 else None,
                truncate=rng.random() < 0.3,
                lane=rng.choice([Lane.PRIORITY, Lane.DEFAULT, Lane.DEFAULT, Lane.FLEX]),
                tenant=rng.choice(["a", "b", "b", "b"]),
            )
        )
    return requests


def play(rig: Rig, requests: list[EngineRequest], cancel_share: float, seed: int = 0) -> None:
    """Delivers each request at its arrival; cancels a share of those that live, at random moments."""
    rng = random.Random(seed)
    todo = list(reversed(requests))
    live: list[int] = []
    while todo or rig.engine.has_work:
        now = rig.clock.now()
        while todo and todo[-1].arrival <= now:
            live.append(todo[-1].id)
            rig.submit(todo.pop())
        if live and rng.random() < cancel_share:
            victim = rng.choice(live[-20:])
            if rig.stories[victim].finish is None:
                rig.cancel(victim)
        wake = rig.engine.next_wake(now)
        wakes = [t for t in (wake, todo[-1].arrival if todo else None) if t is not None]
        if wake is not None and wake <= now:
            check_step(rig)
        elif wakes:
            rig.clock.advance(max(0.0, min(wakes) - now))


def check_step(rig: Rig) -> None:
    begin = rig.clock.now()
    rig.step()
    for sequence in rig.scheduler.running:
        assert sequence.deadline is None or sequence.deadline > begin, "ran more than a step past its deadline"


@pytest.mark.parametrize("kind", ["poisson", "bursts", "heavy tails"])
@pytest.mark.parametrize("policy", ["continuous", "dynamic"])
def test_trace(kind: str, policy: str) -> None:
    info = default_info(blocks=40, slots=10, context=300)
    rig = Rig(info, make_settings(step_tokens=96, policy=policy, max_batch=8), end_probability=0.01)
    play(rig, trace(kind, 2000, seed=11), cancel_share=0.05)
    finish_checks(rig)
    ends = {story.finish for story in rig.stories.values()} - {Finish.REFUSED}  # of those with a deadline
    assert ends == {Finish.STOP, Finish.LENGTH, Finish.CANCELLED, Finish.EXPIRED}


def test_overload_is_refused_and_the_rest_is_served() -> None:
    queue = QueueSettings(max_requests=20, max_tokens=1000)
    rig = Rig(default_info(blocks=40, slots=4), make_settings(step_tokens=64, queue=queue), end_probability=0.01)
    play(rig, trace("bursts", 2000, seed=2), cancel_share=0.0)
    finish_checks(rig)
    refused = [s.emissions[0] for s in rig.stories.values() if s.finish is Finish.REFUSED]
    assert refused and all(0 < emission.retry_after_s <= 60 and emission.detail for emission in refused)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("kind", ["poisson", "bursts", "heavy tails"])
def test_long_trace(kind: str, seed: int) -> None:
    rng = random.Random(seed)
    info = default_info(
        blocks=rng.choice([30, 60, 300]),
        slots=rng.choice([3, 12, 40]),
        context=300,
        windows=((0,), (0, 0), (0, 40), (24,))[seed % 4],
    )
    settings = make_settings(
        step_tokens=rng.choice([16, 100, 512]),
        policy=rng.choice(["continuous", "dynamic", "static"]),
        prefix_cache=rng.random() < 0.7,
    )
    rig = Rig(info, settings, end_probability=0.01)
    play(rig, trace(kind, 5000, seed), cancel_share=0.05, seed=seed)
    finish_checks(rig)


def finish_checks(rig: Rig) -> None:
    rig.check_stories()
    load = rig.engine.load()
    assert (load.running, load.waiting, load.waiting_tokens) == (0, 0, 0)
    assert load.free_blocks == load.total_blocks
