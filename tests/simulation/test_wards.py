"""A request that kills every engine that computes it is found, and the others get their tokens."""

import random
from math import ceil, log2

import pytest
from msgspec import structs
from rig import Rig, make_request, make_settings

from headway.core.events import Finish
from headway.core.lane import Lane
from headway.core.request import Cancel
from headway.model.fake_runner import default_info
from headway.scheduling.plan import Plan
from headway.serving.inquest import Inquest
from headway.serving.step_board import Member


class Death(Exception):
    """Of the engine, while it computes a step."""

    def __init__(self, plan: Plan, watched: int) -> None:
        pairs = zip(plan.sequences, plan.batch.work, strict=True)
        self.members = [Member(s.id, w.start, len(w.tokens)) for s, w in pairs]
        self.ward = plan.ward
        self.watched = watched


class Court:
    """The parent's part: restarts, and who is convicted."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.inquest = Inquest()
        self.restarts = 0
        self.convicted: list[int] = []

    def step(self) -> None:
        try:
            self.rig.step()
        except Death as death:
            self.restarts += 1
            found = self.inquest.died(death.members, death.ward - 1, death.watched)
            if found is not None:
                self.convicted.append(found)
                self.rig.stories[found].finish = Finish.FAILED
            self.rig.kill(self.inquest.groups)

    def run(self) -> None:
        for _ in range(5000):
            if all(story.finish is not None for story in self.rig.stories.values()):
                return
            wake = self.rig.engine.next_wake(self.rig.clock.now())
            assert wake is not None
            self.rig.clock.advance(max(0.0, wake - self.rig.clock.now()))
            self.step()
        raise AssertionError("no end")


def make_rig(count: int, blocks: int = 400, policy: str = "continuous", step_tokens: int = 64) -> Rig:
    info = default_info(blocks=blocks, block_size=4, slots=16, context=90)
    rig = Rig(info, make_settings(step_tokens=step_tokens, sequences=16, policy=policy, max_batch=16))
    rng = random.Random(count)
    for i in range(1, count + 1):
        prompt = [rng.randrange(3, 900) for _ in range(rng.choice([2, 9, 30]))]
        rig.submit(make_request(i, prompt, max_tokens=20, seed=i))
    return rig


@pytest.mark.parametrize("policy", ["continuous", "dynamic", "static"])
@pytest.mark.parametrize("count", [1, 2, 3, 7, 16])
@pytest.mark.parametrize("moment", [0, 35])  # known tokens at which it kills: at once, or somewhere in its answer
def test_it_is_convicted_within_the_bound_and_the_others_end_equal(count: int, moment: int, policy: str) -> None:
    rig = make_rig(count, policy=policy)
    guilty = count // 2 + 1
    rig.requests[guilty] = structs.replace(
        rig.requests[guilty],
        sampling=structs.replace(rig.requests[guilty].sampling, max_tokens=60, ignore_eos=True),
    )
    rig.kill()  # the engine has to hear of the change
    court = Court(rig)

    def kill(plan: Plan) -> None:
        for sequence, work in zip(plan.sequences, plan.batch.work, strict=True):
            if sequence.id == guilty and work.start + len(work.tokens) > moment:
                raise Death(plan, rig.scheduler.wards.count)

    rig.on_begin = kill
    court.run()
    assert court.convicted == [guilty]
    assert court.restarts <= ceil(log2(count)) + 3
    for i in range(1, count + 1):
        rig.check_tokens(i)
        assert i == guilty or rig.stories[i].finish in (Finish.STOP, Finish.LENGTH)


def test_engines_that_die_of_something_else_convict_nobody() -> None:
    rng = random.Random(5)
    rig = make_rig(16)
    court = Court(rig)

    def kill(plan: Plan) -> None:
        if rng.random() < 0.03:
            raise Death(plan, rig.scheduler.wards.count)

    rig.on_begin = kill
    court.run()
    assert court.restarts > 5 and not court.convicted
    rig.check_stories()


def test_suspects_are_cleared_once_they_are_past_the_place() -> None:
    rig = make_rig(4)
    for _ in range(12):
        rig.step()
    seen: list[tuple[int, set[int]]] = []
    groups = [((1, len(rig.scheduler._live[1].known)), (2, 46)), ((3, 5),)]
    rig.kill(groups)
    rig.on_begin = lambda plan: seen.append((plan.ward, {s.id for s in plan.sequences}))
    rig.run()
    rig.check_stories()
    assert all(ids <= {0: {1, 2, 3, 4}, 1: {1, 2}, 2: {3}}[ward] for ward, ids in seen)
    assert {ward for ward, _ in seen[:4]} == {0, 1, 2} and seen[-1][0] == 0
    together = [ids for ward, ids in seen if ward == 0]
    assert together[0] == {4} and set().union(*together) == {1, 2, 3, 4}
    assert rig.scheduler.wards.count == 0


def test_a_suspect_may_be_cancelled_or_never_come() -> None:
    rig = make_rig(3)
    rig.step()
    rig.cancel(2)
    rig.step()
    rig.kill([((1, 90), (7, 3)), ((2, 3),)])
    rig.step()
    assert rig.scheduler.wards.count == 1
    rig.engine.submit(Cancel(id=1, epoch=7, reason="disconnect"))
    rig.run()
    assert rig.scheduler.wards.count == 0 and rig.stories[1].finish is Finish.CANCELLED
    rig.check_tokens(3)


@pytest.mark.parametrize("policy", ["dynamic", "static"])
def test_suspects_take_no_seats_of_the_next_batch(policy: str) -> None:
    rig = make_rig(3, policy=policy)
    rig.kill([((1, 5), (2, 5), (3, 5))])
    rig.step()
    rig.submit(make_request(4, [5, 6, 7], max_tokens=4))
    rig.run()
    rig.check_stories()


@pytest.mark.parametrize("policy", ["continuous", "dynamic", "static"])
@pytest.mark.parametrize("lanes", [(2, 2, 0), (2, 0, 2), (0, 2, 1), (2, 2, 2)])
def test_wards_of_all_lanes_come_to_an_end_in_a_small_pool(lanes: tuple[int, ...], policy: str) -> None:
    info = default_info(blocks=4, block_size=4, slots=1, context=90)
    rig = Rig(info, make_settings(step_tokens=3, sequences=2, policy=policy))
    for serial, lane in enumerate(lanes * 2):
        rig.submit(make_request(serial, [5, 6, 7, 8, serial], lane=Lane(lane), max_tokens=4))
    rig.kill([((serial, 4),) for serial in range(5)])
    rig.run()
    rig.check_stories()


def test_a_suspect_that_has_outgrown_the_pool_ends() -> None:
    rig = Rig(default_info(blocks=4, block_size=4, slots=2, context=90, windows=(7,)))
    rig.submit(make_request(1, [5] * 12, max_tokens=8, ignore_eos=True), make_request(2, [5, 6], max_tokens=2))
    for _ in range(7):
        rig.step()
    assert len(rig.scheduler._live[1].known) > 16
    rig.kill([((1, 90), (2, 90))])
    rig.run()
    assert rig.stories[1].finish is Finish.FAILED and "do not fit" in rig.stories[1].emissions[-1].detail
    rig.check_tokens(2)
