"""The scheduler by hand: plans looked at one by one. Whole runs are in tests/simulation."""

from typing import Any

import pytest
from rig import make_request, make_settings

from headway.core.config import PromiseSettings
from headway.core.events import Emission, Finish
from headway.core.runner import RunnerInfo, Sampled, StepResult
from headway.model.fake_runner import default_info
from headway.scheduling.cost_model import CostModel
from headway.scheduling.plan import Plan
from headway.scheduling.scheduler import Scheduler


def scheduler(info: RunnerInfo | None = None, **settings: Any) -> Scheduler:
    return Scheduler(info or default_info(block_size=4), make_settings(**settings), CostModel())


def expect_short_answers(made: Scheduler) -> Scheduler:
    """It believes that answers are one token long, and lets in too many."""
    for _ in range(256):
        made.planner.kv.forecast.observe(1)
    return made


def commit(made: Scheduler, plan: Plan, token: int = 7, error: str | None = None) -> list[Emission]:
    sampled = [Sampled(token, error=error) if work.sample else None for work in plan.batch.work]
    emissions = made.commit(plan, StepResult(sampled, 0.0))
    made.check_integrity()
    return emissions


def parts(plan: Plan) -> list[tuple[int, int, int, bool]]:
    return [(s.id, w.start, len(w.tokens), w.sample) for s, w in zip(plan.sequences, plan.batch.work, strict=True)]


def test_decodes_first_then_chunks_in_order_of_arrival() -> None:
    made = scheduler(step_tokens=10)
    made.add(make_request(1, [5] * 3))
    plan = made.plan(0.0)
    assert parts(plan) == [(1, 0, 3, True)]
    assert plan.emissions == [Emission(id=1, started=True)] and [s.id for s in plan.started] == [1]
    assert commit(made, plan) == [Emission(id=1, tokens=[7])]
    made.add(make_request(2, [5] * 14))
    made.add(make_request(3, [5] * 4))
    plan = made.plan(0.0)
    assert parts(plan) == [(1, 3, 1, True), (2, 0, 9, False)]
    commit(made, plan)
    plan = made.plan(0.0)
    assert parts(plan) == [(1, 4, 1, True), (2, 9, 5, True), (3, 0, 4, True)]
    assert [o.slot for o in plan.batch.openings] == [plan.batch.work[2].slot]


def test_limits_of_running_sequences() -> None:
    for made in (scheduler(sequences=2), scheduler(step_tokens=2), scheduler(default_info(slots=2))):
        for serial in range(4):
            made.add(make_request(serial, [5]))
        assert len(made.plan(0.0).sequences) == 2 and made.capacity == 2


def test_an_empty_plan_is_done() -> None:
    made = scheduler()
    assert not made.plan(0.0).batch.work and not made.plan(0.0).batch.work
    assert made.next_ask(0.0) is None and not made.has_work


def test_a_plan_must_be_committed() -> None:
    made = scheduler()
    made.add(make_request(1, [5]))
    made.plan(0.0)
    with pytest.raises(AssertionError):
        made.plan(0.0)


def test_a_newcomer_leaves_a_block_for_each_that_runs() -> None:
    made = expect_short_answers(scheduler(default_info(block_size=4, blocks=4), prefix_cache=False))
    for serial, length in enumerate([7, 3, 1]):
        made.add(make_request(serial, [5] * length))
    assert parts(made.plan(0.0)) == [(0, 0, 7, True), (1, 0, 3, True)]
    assert made.blocks.available == 1 and made.room == 0


def test_the_youngest_is_preempted_and_comes_back_as_it_was() -> None:
    made = expect_short_answers(scheduler(default_info(block_size=4, blocks=5), prefix_cache=False))
    for serial in (1, 2):
        made.add(make_request(serial, [serial] * 7, max_tokens=5))
    for token in (50, 51):
        commit(made, made.plan(0.0), token=token)
    plan = made.plan(0.0)
    assert parts(plan) == [(1, 8, 1, True)] and made.counters.preemptions == 1
    made.add(make_request(3, [3]))
    assert [s.id for s in made.waiting] == [2, 3]
    while made.is_live(1):
        commit(made, plan)
        plan = made.plan(0.0)
    assert parts(plan)[0] == (2, 0, 9, True) and not any(e.id == 2 and e.started for e in plan.emissions)
    assert list(plan.batch.openings[0].known) == [2] * 7 + [50, 51] and plan.batch.openings[0].prompt_length == 7
    commit(made, plan)
    assert made.counters.recomputed_tokens == 8


def test_a_lone_sequence_that_outgrows_the_pool_fails_alone() -> None:
    made = scheduler(default_info(block_size=4, blocks=2))
    made.add(make_request(1, [5] * 7, max_tokens=20))
    for _ in range(2):
        commit(made, made.plan(0.0))
    made.add(make_request(2, [6]))
    plan = made.plan(0.0)
    assert plan.emissions[0].finish is Finish.FAILED and "KV cache" in plan.emissions[0].detail
    assert parts(plan) == [(2, 0, 1, True)]


@pytest.mark.parametrize(
    ("prompt", "detail"), [([], "no tokens"), ([5] * 600, "context"), ([5] * 8, "KV cache"), ([9999], "vocabulary")]
)
def test_the_impossible_is_rejected_at_once(prompt: list[int], detail: str) -> None:
    made = scheduler(default_info(block_size=4, blocks=2))
    made.add(make_request(1, prompt))
    plan = made.plan(0.0)
    assert not plan.batch.work and not made.has_work
    [emission] = plan.emissions
    assert emission.finish is Finish.FAILED and detail in emission.detail


def test_no_tokens_asked_for_costs_nothing() -> None:
    made = scheduler()
    made.add(make_request(1, [5], max_tokens=0))
    plan = made.plan(0.0)
    assert not plan.batch.work and plan.emissions == [Emission(id=1, started=True, finish=Finish.LENGTH)]


def test_a_live_id_is_not_touched_by_a_newcomer() -> None:
    made = scheduler()
    made.add(make_request(1, [5]))
    made.add(make_request(1, [6]))
    plan = made.plan(0.0)
    assert [(e.finish, e.started) for e in plan.emissions] == [(Finish.FAILED, False), (None, True)]
    assert list(plan.batch.work[0].tokens) == [5]


def test_an_error_ends_only_its_sequence() -> None:
    made = scheduler()
    made.add(make_request(1, [5]))
    made.add(make_request(2, [5]))
    plan = made.plan(0.0)
    result = StepResult([Sampled(0, error="not finite"), Sampled(7)], 0.0)
    emissions = made.commit(plan, result)
    assert emissions == [Emission(id=1, finish=Finish.FAILED, detail="not finite"), Emission(id=2, tokens=[7])]
    made.check_integrity()


@pytest.mark.parametrize("state", ["waiting", "in flight", "running"])
def test_cancel(state: str) -> None:
    made = scheduler()
    made.add(make_request(1, [5] * 9))
    made.add(make_request(2, [5]))
    if state != "waiting":
        plan = made.plan(0.0)
        if state == "in flight":
            made.cancel(1, "gone")
            assert made.blocks.available < made.blocks.total
            assert commit(made, plan) == [Emission(id=2, tokens=[7])]
        else:
            commit(made, plan)
    if state != "in flight":
        made.cancel(1, "gone")
    made.cancel(1, "twice")
    made.check_integrity()
    assert all(s.id != 1 for s in [*made.running, *made.waiting])
    plan = made.plan(0.0)
    assert plan.emissions[0] == Emission(id=1, finish=Finish.CANCELLED, detail="gone")
    assert [s.id for s in plan.sequences] == [2]


def test_deadlines() -> None:
    made = scheduler(sequences=1)
    made.add(make_request(1, [5], deadline=1.0))
    made.add(make_request(2, [5], deadline=0.5))
    commit(made, made.plan(0.0))
    plan = made.plan(0.5)
    assert [(e.id, e.finish) for e in plan.emissions] == [(2, Finish.EXPIRED)]
    commit(made, plan)
    made.add(make_request(3, [5], deadline=0.1))  # dead on arrival
    plan = made.plan(1.0)
    assert {(e.id, e.finish) for e in plan.emissions} == {(1, Finish.EXPIRED), (3, Finish.EXPIRED)}
    assert not plan.batch.work and not made.has_work
    made.check_integrity()


def test_the_longest_wait_in_the_queue() -> None:
    """It bounds the wait for the first step only: who was let in stays, also when preempted."""
    made = scheduler(sequences=1, promise=PromiseSettings(queue_s=2.0))
    made.add(make_request(1, [5], arrival=0.0))
    commit(made, made.plan(0.0))
    made.add(make_request(2, [5], arrival=0.5, deadline=9.0))
    made.add(make_request(3, [5], arrival=0.5, deadline=1.0))
    assert made.next_ask(0.6) == 0.6
    commit(made, made.plan(2.4))
    plan = made.plan(2.5)
    ended = {e.id: e for e in plan.emissions}
    assert 1 not in ended and ended[2].finish is Finish.REFUSED
    assert ended[2].retry_after_s == 2.0 and "queue_s" in ended[2].detail
    commit(made, plan)
    made.check_integrity()
    assert not made.waiting


def test_next_ask_names_the_earliest_reason() -> None:
    made = scheduler(policy="dynamic")
    made.add(make_request(1, [5], arrival=1.0, deadline=1.002))
    assert made.next_ask(1.0) == 1.002
    made.add(make_request(2, [5], arrival=1.0))
    made.plan(1.003)
    assert made.next_ask(1.003) == 1.005
    assert made.plan(1.005).sequences


def test_a_prefix_hit_is_reported_once_and_saves_the_computing() -> None:
    made = scheduler()
    made.add(make_request(1, [5] * 9, max_tokens=1))
    commit(made, made.plan(0.0))
    made.add(make_request(2, [5] * 9))
    plan = made.plan(0.0)
    assert plan.emissions == [Emission(id=2, started=True, cached_tokens=8)]
    assert parts(plan) == [(2, 8, 1, True)] and made.counters.cached_tokens == 8
