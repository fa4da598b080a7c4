"""Deadlines, cut answers, and streams that are without a token for too long."""

import pytest
from rig import Rig, alone, make_request, make_settings

from headway.core.config import LaneSettings, PromiseSettings
from headway.core.events import Finish
from headway.core.lane import Lane
from headway.model.fake_runner import default_info


def slow(**settings: object) -> Rig:
    return Rig(settings=make_settings(**settings), step_time=lambda batch: 0.1)  # type: ignore[arg-type]


def end(rig: Rig, request: int) -> tuple[Finish | None, str]:
    return rig.stories[request].finish, rig.stories[request].emissions[-1].detail


def test_a_truncated_answer_is_what_there_is_at_the_deadline() -> None:
    rig = slow()
    usual = {"deadline": 1.05, "max_tokens": 100, "ignore_eos": True}
    rig.submit(make_request(1, [5] * 9, truncate=True, **usual), make_request(2, [5] * 9, **usual))
    rig.submit(make_request(3, [6] * 9, max_tokens=20, ignore_eos=True))
    rig.run()
    rig.check_stories()
    assert end(rig, 1) == (Finish.LENGTH, "cut at the request's deadline")
    assert rig.stories[1].tokens == alone(rig.requests[1], rig.info, rig.runner.vocabulary)[0][:11]
    assert end(rig, 2) == (Finish.EXPIRED, "the request's deadline passed while it ran")
    assert end(rig, 3) == (Finish.LENGTH, "") and len(rig.stories[3].tokens) == 20


@pytest.mark.parametrize(("sequences", "where"), [(1, "in the queue"), (2, "while it ran")])
def test_without_a_token_there_is_nothing_to_truncate(sequences: int, where: str) -> None:
    rig = slow(sequences=sequences, step_tokens=16)
    rig.submit(make_request(1, [5] * 9, max_tokens=30, ignore_eos=True))
    rig.submit(make_request(2, [6] * 400, truncate=True, deadline=1.0, max_tokens=9))
    rig.run()
    rig.check_stories()
    assert end(rig, 2) == (Finish.EXPIRED, f"the request's deadline passed {where}") and not rig.stories[2].tokens
    assert len(rig.stories[1].tokens) == 30


def test_an_answer_that_ends_in_time_is_whole() -> None:
    rig = slow()
    rig.submit(make_request(1, [5], truncate=True, deadline=5.0, max_tokens=9, ignore_eos=True))
    rig.run()
    rig.check_stories()
    assert end(rig, 1) == (Finish.LENGTH, "") and len(rig.stories[1].tokens) == 9


def starve(token_s: float, least_share: float = 0.0) -> Rig:
    """A flex stream that has begun, then nothing but others for 30 seconds."""
    rig = slow(
        sequences=4,
        promise=PromiseSettings(token_s=token_s),
        lanes=LaneSettings(least_share=least_share),
    )
    rig.submit(make_request(0, [5] * 20, lane=Lane.FLEX, max_tokens=400, ignore_eos=True))
    for _ in range(5):
        rig.step()
    assert 0 < len(rig.stories[0].tokens) < 10
    for serial in range(1, 9):
        rig.submit(make_request(serial, [serial + 5] * 20, lane=Lane.PRIORITY, max_tokens=150, ignore_eos=True))
    rig.run()
    rig.check_stories()
    assert all(end(rig, serial) == (Finish.LENGTH, "") for serial in range(1, 9))
    return rig


@pytest.mark.parametrize("token_s", [2.0, 20.0])
def test_a_stream_without_a_token_for_too_long_ends_alone(token_s: float) -> None:
    rig = starve(token_s)
    assert end(rig, 0) == (Finish.EXPIRED, f"no token could be given to it within {token_s:g} s (promise.token_s)")
    [gone] = [n for n, (_, m) in enumerate(rig.messages) if any(e.id == 0 and e.finish for e in m.emissions)]
    last = [r.time for r in rig.records if r.time <= 0.5][-1]
    assert rig.messages[gone][1].load.time == pytest.approx(last + token_s, abs=0.3)


@pytest.mark.parametrize(("token_s", "least_share"), [(0.0, 0.0), (100.0, 0.0)])
def test_no_limit_or_a_long_one_ends_nobody(token_s: float, least_share: float) -> None:
    rig = starve(token_s, least_share)
    assert end(rig, 0) == (Finish.LENGTH, "") and len(rig.stories[0].tokens) == 400


@pytest.mark.parametrize("token_s", [3.0, 0.0])
def test_a_preempted_stream_that_cannot_come_back_in_time_ends_alone(token_s: float) -> None:
    info = default_info(block_size=4, blocks=20)
    rig = Rig(info, make_settings(promise=PromiseSettings(token_s=token_s)), step_time=lambda batch: 0.1)
    rig.expect_short_answers()
    for serial in (1, 2):
        rig.submit(make_request(serial, [serial + 5] * 15, arrival=serial * 1e-6, max_tokens=60))
    rig.run()
    rig.check_stories()
    assert rig.scheduler.counters.preemptions > 0
    assert rig.stories[1].finish is Finish.LENGTH
    assert rig.stories[2].finish is (Finish.EXPIRED if token_s else Finish.LENGTH)


def test_a_stream_that_has_its_tokens_is_never_ended() -> None:
    """Longer in all than the limit, and each step nearly as long."""
    rig = slow(promise=PromiseSettings(token_s=0.11))
    rig.submit(*(make_request(n, [n + 5], max_tokens=50, ignore_eos=True) for n in range(3)))
    rig.run()
    rig.check_stories()
    assert all(len(story.tokens) == 50 for story in rig.stories.values())
