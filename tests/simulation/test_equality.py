"""A request's tokens depend on the request alone: not on chunks, pool, prefix cache, policy or neighbours."""

import random

import pytest
from rig import Rig, make_request, make_settings

from headway.core.events import Finish
from headway.core.lane import Lane
from headway.core.request import EngineRequest
from headway.model.fake_runner import default_info

PREFIXES = [[9, 8, 7] * 12, [5] * 40, list(range(20, 90))]


def some_requests(count: int = 24) -> list[EngineRequest]:
    rng = random.Random(3)
    requests = []
    for serial in range(count):
        prompt = rng.choice(PREFIXES)[: rng.randint(1, 70)] + [
            rng.randint(3, 900) for _ in range(rng.choice([0, 1, 30]))
        ]
        requests.append(
            make_request(
                serial,
                prompt,
                arrival=serial * 0.002,
                max_tokens=rng.choice([1, 2, 40, 80]),
                temperature=rng.choice([0.0, 1.0]),
                min_tokens=rng.choice([0, 0, 5]),
                ignore_eos=rng.random() < 0.3,
                stop_token_ids=(rng.randint(3, 900),),
                salt=rng.choice([b"", b"tenant"]),
                lane=rng.choice(list(Lane)),
                tenant=rng.choice(["", "a"]),
            )
        )
    return requests


@pytest.mark.parametrize("prefix_cache", [True, False])
@pytest.mark.parametrize("policy", ["continuous", "dynamic", "static"])
@pytest.mark.parametrize("blocks", [10, 24, 400])
@pytest.mark.parametrize("step_tokens", [16, 64, 512])
def test_tokens_are_those_of_the_request_alone(step_tokens: int, blocks: int, policy: str, prefix_cache: bool) -> None:
    info = default_info(blocks=blocks, block_size=16, slots=12, windows=(0, 50), context=160)
    settings = make_settings(step_tokens=step_tokens, policy=policy, prefix_cache=prefix_cache, max_batch=6)
    rig = Rig(info, settings, end_probability=0.005)
    rig.expect_short_answers()
    rig.submit(*some_requests())
    rig.run()
    rig.check_stories()
    assert {story.finish for story in rig.stories.values()} <= {Finish.STOP, Finish.LENGTH}
    counters = rig.scheduler.counters
    assert counters.preemptions > 0 or blocks > 10
    assert (counters.cached_tokens > 0) == prefix_cache
    emitted = sum(len(story.tokens) for story in rig.stories.values())
    prompts = sum(len(request.prompt) // 4 for request in rig.requests.values())
    hits = sum(story.emissions[0].cached_tokens for story in rig.stories.values())
    account = prompts + emitted - len(rig.stories) - hits + counters.recomputed_tokens
    if not counters.preemptions or not prefix_cache:
        assert counters.computed_tokens == account
    # who was preempted in the middle of its prompt may find more of it cached when it comes back
    assert counters.computed_tokens <= account


def test_same_trace_gives_same_plans() -> None:
    plans = []
    for _ in range(2):
        rig = Rig(default_info(blocks=12, slots=6), make_settings(step_tokens=32), end_probability=0.02)
        rig.submit(*some_requests())
        rig.run()
        plans.append(rig.runner.plans)
    assert plans[0] == plans[1]


def test_arrival_order_does_not_matter() -> None:
    requests = some_requests()
    rig = Rig(default_info(blocks=14), make_settings(step_tokens=48), end_probability=0.02)
    rng = random.Random(5)
    rng.shuffle(requests)
    for request in requests:
        rig.submit(request)
        for _ in range(rng.randint(0, 5)):
            rig.step()
    rig.run()
    rig.check_stories()
