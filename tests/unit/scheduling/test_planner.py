"""Who is in a step and who is let in, plan by plan."""

from typing import Any

from rig import make_request, make_settings

from headway.core.config import LaneSettings
from headway.core.lane import Lane
from headway.core.runner import RunnerInfo, Sampled, StepResult
from headway.model.fake_runner import default_info
from headway.scheduling.cost_model import CostModel
from headway.scheduling.plan import Plan
from headway.scheduling.scheduler import Scheduler


def scheduler(
    info: RunnerInfo | None = None, answers: int = 8, costs: CostModel | None = None, **settings: Any
) -> Scheduler:
    """It expects answers of so many tokens."""
    made = Scheduler(info or default_info(block_size=4), make_settings(**settings), costs or CostModel())
    for _ in range(256):
        made.planner.kv.forecast.observe(answers)
    return made


def step(made: Scheduler) -> dict[int, int]:
    """Tokens of each in the next step, which is computed."""
    plan: Plan = made.plan(0.0)
    works = plan.batch.work
    made.commit(plan, StepResult([Sampled(7) if work.sample else None for work in works], 0.0))
    made.check_integrity()
    return {s.id: len(work.tokens) for s, work in zip(plan.sequences, works, strict=True)}


def test_a_newcomer_leaves_everybody_a_block_to_grow_into() -> None:
    """Four that will need a second block at the next step, and four that are free: none of them for a newcomer."""
    made = scheduler(default_info(block_size=4, blocks=8), answers=3, prefix_cache=False)
    for serial in range(4):
        made.add(make_request(serial, [serial + 5] * 3, max_tokens=4))
    assert list(step(made)) == [0, 1, 2, 3]
    made.add(make_request(4, [9], max_tokens=4))
    while len(made.running) == 4:
        assert list(step(made)) == [0, 1, 2, 3]
    assert made.counters.preemptions == 0
    assert list(step(made)) == [4]


def test_begun_prompts_and_newcomers_have_their_turns_by_what_their_tenants_have_had() -> None:
    made = scheduler(step_tokens=10)
    made.add(make_request(1, [5] * 100, tenant="big"))
    made.add(make_request(2, [6] * 100, tenant="big"))
    assert step(made) == {1: 10}
    made.add(make_request(3, [7] * 15, tenant="small"))
    assert step(made) == {1: 10}  # level with the one that is there, whose turn it was
    assert step(made) == {3: 10}
    assert step(made) == {1: 10}
    assert step(made) == {3: 5, 1: 5}


def test_lanes_come_in_their_order_and_flex_has_the_rest() -> None:
    made = scheduler(step_tokens=20, lanes=LaneSettings(least_share=0.0))
    for serial, lane in ((1, Lane.FLEX), (2, Lane.DEFAULT), (3, Lane.PRIORITY)):
        made.add(make_request(serial, [serial] * 16, lane=lane, max_tokens=2))
    assert step(made) == {3: 16, 2: 4}
    assert step(made) == {3: 1, 2: 12, 1: 7}
    assert step(made) == {2: 1, 1: 9}


def test_a_newcomer_throws_out_flex_for_its_slot_but_not_another_interactive_one() -> None:
    made = scheduler(sequences=2, lanes=LaneSettings(least_share=0.0))
    for serial in (1, 2):
        made.add(make_request(serial, [5], lane=Lane.FLEX))
    step(made)
    for serial, lane in ((3, Lane.DEFAULT), (4, Lane.DEFAULT), (5, Lane.PRIORITY)):
        made.add(make_request(serial, [5], lane=lane))
    assert set(step(made)) == {5, 3}
    assert made.counters.preemptions == 2 and [s.id for s in made.waiting] == [1, 2, 4]


def test_a_cached_prefix_too_long_to_go_on_from_in_this_step_waits_for_the_next() -> None:
    """Its next token is dearer than one of a new prompt: nobody is opened in the runner without work."""
    dear_keys = CostModel((1e-4, 1e-4, 0.15, 1e-4))
    made = scheduler(costs=dear_keys, step_tokens=500)
    prompt = [n % 900 + 3 for n in range(402)]
    made.add(make_request(1, prompt, max_tokens=1))
    made.add(make_request(2, [5], max_tokens=50))
    step(made)
    made.add(make_request(3, [6] * 20))
    made.add(make_request(4, prompt))
    assert step(made) == {2: 1, 3: 20}
    assert [s.id for s in made.waiting] == [4]
    made.check_integrity()
    assert step(made) == {2: 1, 3: 1, 4: 2}
