"""A hundred thousand requests of all lanes, some of them cancelled, in virtual time."""

import random
from collections.abc import Iterator
from itertools import count

import pytest
from rig import make_request, make_settings
from watch import drive, step_time

from headway.core.clock import ManualClock
from headway.core.config import LaneSettings, PromiseSettings, QueueSettings
from headway.core.events import Finish, StepMessage
from headway.core.lane import Lane
from headway.core.request import Cancel, EngineRequest
from headway.core.runner import Sampled, StepResult
from headway.model.fake_runner import FakeRunner, default_info
from headway.scheduling.engine import Engine

EPOCH = 7


class QuickRunner(FakeRunner):
    """Says the same token to everybody, and checks nothing."""

    def collect(self) -> StepResult:
        batch, self._batch = self._batch, None
        assert batch is not None
        return StepResult([self.TOKEN if work.sample else None for work in batch.work], self._spend(batch))

    TOKEN = Sampled(7)


def requests(total: int, rate: float, seed: int) -> Iterator[EngineRequest]:
    """Bursts; prompts of 1-120 tokens, answers of 1-40, now and then a long one of either."""
    rng, time = random.Random(seed), 0.0
    shared = [[rng.randrange(3, 900) for _ in range(48)] for _ in range(8)]
    for serial in range(total):
        time += 0.0 if rng.random() < 0.5 else rng.expovariate(rate / 2)
        body = [
            rng.randrange(3, 900) for _ in range(rng.randint(1, 300) if rng.random() < 0.02 else rng.randint(1, 60))
        ]
        yield make_request(
            serial,
            rng.choice(shared)[: rng.choice([0, 20, 48])] + body,
            arrival=time,
            lane=rng.choices(list(Lane), [1, 4, 2])[0],
            tenant=rng.choice("abbbc"),
            weight=1.0,
            deadline=time + rng.uniform(0.5, 20.0) if rng.random() < 0.1 else None,
            truncate=rng.random() < 0.5,
            max_tokens=rng.randint(1, 200) if rng.random() < 0.02 else rng.randint(1, 20),
            stop_token_ids=(2,),
        )


def replay(total: int, check_every: int, seed: int = 0) -> dict[Finish, int]:
    """How many ended how."""
    clock = ManualClock()
    info = default_info(blocks=600, context=512, slots=48, max_batch_tokens=512)
    settings = make_settings(
        step_tokens=512,
        sequences=48,
        promise=PromiseSettings(queue_s=30.0),
        queue=QueueSettings(max_requests=400, max_tokens=100_000),
        lanes=LaneSettings(long_prompt_tokens=200),
    )
    live: set[int] = set()
    ends = dict.fromkeys(Finish, 0)

    def publish(worker: int, message: StepMessage) -> None:
        for emission in message.emissions:
            if emission.finish is not None:
                live.remove(emission.id)  # once, and nobody who never came
                ends[emission.finish] += 1

    runner = QuickRunner(info, clock=clock, step_time=lambda batch: 0.4 * step_time(batch))
    engine = Engine(runner, settings, clock, EPOCH, publish)
    rng, steps = random.Random(seed), count()

    def submit(request: EngineRequest) -> None:
        live.add(request.id)
        engine.submit(request)
        if rng.random() < 0.02:
            gone = rng.randrange(max(0, request.id - 50), request.id + 1)
            engine.submit(Cancel(id=gone, epoch=EPOCH, reason="gone"))

    def check() -> None:
        if next(steps) % check_every == 0:
            engine.scheduler.check_integrity()

    drive(engine, clock, requests(total, 90.0, seed), submit, every=check)
    engine.scheduler.check_integrity()
    load = engine.load()
    assert not live and not engine.has_work and sum(ends.values()) == total
    assert (load.running, load.waiting, load.waiting_tokens) == (0, 0, 0)
    assert load.free_blocks == load.total_blocks
    assert all(account.live == 0 for account in engine.scheduler.ledger)
    return ends


@pytest.mark.parametrize(
    ("total", "check_every"),
    [(2000, 50), pytest.param(100_000, 1000, marks=[pytest.mark.long, pytest.mark.timeout(900)])],
)
def test_all_of_many_come_to_an_end(total: int, check_every: int) -> None:
    ends = replay(total, check_every)
    assert ends[Finish.FAILED] == 0
    assert all(ends[finish] > 0 for finish in (Finish.LENGTH, Finish.CANCELLED, Finish.EXPIRED))
