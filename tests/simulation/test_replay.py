"""An engine dies at any moment: the next one gives every request the tokens that it would have had."""

import random

import pytest
from rig import Rig, make_request, make_settings

from headway.core.config import PromiseSettings, QueueSettings
from headway.core.events import Finish
from headway.core.lane import Lane
from headway.model.fake_runner import default_info

REQUESTS = 12


def submit_all(rig: Rig, **fields: object) -> None:
    rng = random.Random(1)
    for i in range(1, REQUESTS + 1):
        prompt = [rng.randrange(3, 900) for _ in range(rng.choice([1, 7, 40]))]
        rig.submit(make_request(i, prompt, max_tokens=25, seed=i, lane=Lane(i % 3), tenant=f"t{i % 2}", **fields))


@pytest.mark.parametrize("policy", ["continuous", "dynamic", "static"])
@pytest.mark.parametrize("blocks", [40, 400])  # the first: some have been preempted when it happens
def test_tokens_stay_whenever_it_dies(policy: str, blocks: int) -> None:
    for moment in range(1, 40, 6):
        rig = Rig(
            default_info(blocks=blocks, block_size=4, slots=8, context=90),
            make_settings(step_tokens=16, policy=policy, sequences=8),
            end_probability=0.03,
        )
        submit_all(rig)
        for _ in range(moment):
            rig.step()
        rig.kill()
        rig.run()
        rig.check_stories()
        assert all(story.finish in (Finish.STOP, Finish.LENGTH) for story in rig.stories.values())


def test_tokens_stay_if_it_dies_again_and_again() -> None:
    rig = Rig(default_info(blocks=200, block_size=4, slots=8, context=90), make_settings(step_tokens=64, sequences=8))
    submit_all(rig)
    rng = random.Random(2)
    for _ in range(25):
        for _ in range(rng.randrange(3, 12)):
            rig.step()
        rig.kill()
    rig.run()
    rig.check_stories()


def test_who_was_let_in_is_not_refused_by_the_next_engine() -> None:
    settings = make_settings(
        step_tokens=16,
        sequences=2,
        queue=QueueSettings(max_requests=REQUESTS - 2, max_tokens=10_000),
        promise=PromiseSettings(queue_s=5.0, ttft_ms=1000.0),
    )
    rig = Rig(default_info(blocks=200, block_size=4, slots=2, context=90), settings)
    submit_all(rig)
    rig.step()
    refused = {i for i, story in rig.stories.items() if story.finish is Finish.REFUSED}
    for _ in range(5):
        rig.step()
    rig.clock.advance(60.0)  # far beyond the longest wait in the queue
    rig.kill()
    rig.run()
    assert {i for i, s in rig.stories.items() if s.finish not in (Finish.STOP, Finish.LENGTH)} == refused


def test_a_deadline_holds_across_engines() -> None:
    rig = Rig(default_info(slots=2), make_settings(sequences=2))
    rig.submit(make_request(1, [5, 6], max_tokens=500, deadline=1.0))
    rig.submit(make_request(2, [5, 7], max_tokens=500, deadline=1.0, truncate=True))
    for _ in range(20):
        rig.step()
    rig.clock.advance(1.0)
    rig.kill()
    rig.run()
    assert (rig.stories[1].finish, rig.stories[2].finish) == (Finish.EXPIRED, Finish.LENGTH)
    assert rig.stories[2].tokens


def test_what_is_computed_again_is_charged_to_nobody() -> None:
    rig = Rig(default_info(blocks=200, block_size=4, slots=2, context=90), make_settings(sequences=2))
    rig.submit(make_request(1, list(range(3, 43)), max_tokens=40, ignore_eos=True))
    while len(rig.stories[1].tokens) < 20:
        rig.step()
    rig.kill()
    rig.step()
    assert rig.scheduler.counters.recomputed_tokens == 40 + len(rig.stories[1].tokens) - 1
