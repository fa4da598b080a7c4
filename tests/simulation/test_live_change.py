"""New settings in the middle of everything: they hold from the next step on, and nobody who is there notices."""

import random

import pytest
from rig import Rig, make_request, make_settings

from headway.core.config import LaneSettings, PromiseSettings, QueueSettings, Settings, TuningSettings
from headway.core.events import Finish
from headway.core.lane import Lane
from headway.model.fake_runner import default_info

CHANGES = [
    make_settings(policy="dynamic"),
    make_settings(policy="static", max_batch=2),
    make_settings(promise=PromiseSettings(itl_ms=2.0, token_s=0.5)),
    make_settings(promise=PromiseSettings(itl_ms=0.0, queue_s=100.0)),
    make_settings(queue=QueueSettings(max_requests=0, max_tokens=0)),
    make_settings(lanes=LaneSettings(least_share=0.3, long_prompt_tokens=20, long_prompt_share=0.2, aging_tokens=0.0)),
    make_settings(tuning=TuningSettings(enabled=False)),
    make_settings(),
]


def change(rig: Rig, settings: Settings) -> None:
    rig.engine.reconfigure(settings)
    rig.settings = settings


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("blocks", [30, 300])
def test_nothing_live_is_dropped_and_tokens_stay_the_same(blocks: int, seed: int) -> None:
    rng = random.Random(seed)
    rig = Rig(default_info(blocks=blocks, block_size=4, slots=8, context=110), make_settings(step_tokens=32))
    rig.expect_short_answers()
    for serial in range(60):
        prompt = [rng.randint(3, 900) for _ in range(rng.randint(1, 50))]
        lane, tenant = rng.choice(list(Lane)), rng.choice("ab")
        rig.submit(make_request(serial, prompt, lane=lane, tenant=tenant, max_tokens=rng.randint(1, 50)))
    rig.step()
    for _ in range(200):
        rig.step()
        rig.clock.advance(0.001)
        if rng.random() < 0.2:
            change(rig, rng.choice(CHANGES).model_copy(update={"engine": rig.settings.engine}))
    change(rig, make_settings(step_tokens=32))
    rig.run()
    rig.check_stories()
    assert all(story.finish is Finish.LENGTH for story in rig.stories.values())


def busy() -> Rig:
    rig = Rig(settings=make_settings(sequences=8, step_tokens=64))
    rig.submit(*(make_request(n, [n + 5] * 8, max_tokens=100, ignore_eos=True) for n in range(8)))
    for _ in range(10):
        rig.step()
    return rig


def test_another_promise_sizes_the_next_step() -> None:
    def chunk_after(settings: Settings) -> int:
        rig = busy()
        rig.engine.reconfigure(settings)
        rig.cancel(7)
        rig.submit(make_request(99, [5] * 400, lane=Lane.PRIORITY, arrival=rig.clock.now()))
        rig.step()
        return rig.records[-1].tokens - 7

    base = make_settings(sequences=8)
    assert chunk_after(base) == 57
    assert chunk_after(base.model_copy(update={"promise": PromiseSettings(itl_ms=0.1)})) == 16
    assert chunk_after(base.model_copy(update={"promise": PromiseSettings(itl_ms=0.0)})) == 57


def test_another_queue_bound_holds_for_those_who_come() -> None:
    rig = busy()
    rig.submit(*(make_request(20 + n, [5]) for n in range(5)))
    rig.step()
    rig.engine.reconfigure(make_settings(sequences=8, queue=QueueSettings(max_requests=5, max_tokens=1000)))
    rig.submit(make_request(30, [5]))
    rig.step()
    rig.step()
    assert rig.stories[30].finish is Finish.REFUSED
    rig.run()
    assert all(story.finish is Finish.LENGTH for n, story in rig.stories.items() if n != 30)


def test_another_policy_forms_the_next_batch() -> None:
    rig = busy()
    rig.engine.reconfigure(make_settings(sequences=8, policy="static", max_batch=2))
    rig.submit(*(make_request(20 + n, [n + 5], arrival=rig.clock.now()) for n in range(6)))
    while any(n < 8 for n in rig.scheduler._live):
        rig.step()
        assert all(s.id < 8 for s in rig.scheduler.running) or not any(n < 8 for n in rig.scheduler._live)
    sizes = set()
    while rig.engine.has_work:
        rig.step()
        sizes.add(len(rig.scheduler.running))
    assert max(sizes) == 2
    rig.check_stories()


def test_another_length_of_long_prompts_and_least_share() -> None:
    rig = busy()
    lanes = LaneSettings(long_prompt_tokens=10, least_share=0.3)
    rig.engine.reconfigure(make_settings(sequences=8, lanes=lanes))
    rig.submit(make_request(20, [5] * 11), make_request(21, [6] * 10))
    rig.step()
    assert {s.id: s.long for s in rig.scheduler.waiting} == {20: True, 21: False}
    assert rig.scheduler.planner._least.share == 0.3


def test_queue_s_and_token_s_of_now_hold_for_those_who_come() -> None:
    rig = busy()
    rig.engine.reconfigure(make_settings(sequences=8, promise=PromiseSettings(queue_s=0.01)))
    rig.submit(make_request(20, [5], arrival=rig.clock.now()))
    for _ in range(3):
        rig.clock.advance(0.01)
        rig.step()
    rig.step()
    assert rig.stories[20].finish is Finish.REFUSED and "queue_s" in rig.stories[20].emissions[-1].detail


def test_a_stream_that_waits_for_a_token_is_spared_when_the_limit_is_taken_away() -> None:
    starving = LaneSettings(least_share=0.0)
    rig = Rig(settings=make_settings(sequences=2, promise=PromiseSettings(token_s=0.5), lanes=starving))
    rig.submit(make_request(0, [5], lane=Lane.FLEX, max_tokens=50, ignore_eos=True))
    rig.step()
    rig.submit(*(make_request(n, [n + 5], lane=Lane.PRIORITY, max_tokens=400, ignore_eos=True) for n in range(1, 5)))
    rig.step()
    rig.engine.reconfigure(make_settings(sequences=2, promise=PromiseSettings(token_s=0.0), lanes=starving))
    rig.run()
    assert rig.clock.now() > 0.9 and rig.stories[0].finish is Finish.LENGTH
    rig.check_stories()
