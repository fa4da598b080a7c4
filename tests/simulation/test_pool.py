"""Too few blocks: everybody comes to an end, and who can never go on ends alone."""

import random

import pytest
from rig import Rig, make_request, make_settings

from headway.core.config import LaneSettings
from headway.core.events import Finish
from headway.core.lane import Lane
from headway.model.fake_runner import default_info
from headway.scheduling.running import RunningSet
from headway.scheduling.sequence import Sequence
from headway.scheduling.victims import seniority


def tight(blocks: int, prefix_cache: bool = True, sequences: int = 8) -> Rig:
    info = default_info(blocks=blocks, block_size=4, slots=8, context=120)
    return Rig(info, make_settings(step_tokens=24, sequences=sequences, prefix_cache=prefix_cache))


def watch_victims(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> list[tuple[Sequence, list[Sequence]]]:
    """Everybody that leaves, with those it was chosen from."""
    seen: list[tuple[Sequence, list[Sequence]]] = []
    remove = RunningSet.remove

    def watch(running: RunningSet, victim: Sequence) -> None:
        seen.append((victim, list(running)))
        remove(running, victim)

    monkeypatch.setattr(RunningSet, "remove", watch)
    return seen


@pytest.mark.parametrize("prefix_cache", [True, False])
@pytest.mark.parametrize("seed", range(6))
def test_everybody_comes_to_an_end(seed: int, prefix_cache: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    rig = tight(20, prefix_cache)
    rig.expect_short_answers()
    victims = watch_victims(rig, monkeypatch)
    for serial in range(40):
        prompt = [rng.randint(3, 900) for _ in range(rng.randint(1, 30))]
        lane = rng.choice(list(Lane))
        out = rng.randint(1, 78 - len(prompt))
        rig.submit(make_request(serial, prompt, arrival=serial * 1e-3, lane=lane, max_tokens=out))
    rig.run()
    rig.check_stories()
    assert all(story.finish is Finish.LENGTH for story in rig.stories.values())
    assert len(victims) == rig.scheduler.counters.preemptions > 0
    last: Sequence | None = None
    for victim, running in victims:
        assert victim is not min(running, key=seniority) or victim.lane is Lane.FLEX
        assert all(s.lane <= victim.lane for s in running)
        others = [s for s in running if s.lane is victim.lane and s is not min(running, key=seniority)]
        assert victim is not last or len(others) == 1
        last = victim


def test_the_most_senior_is_never_thrown_out(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = tight(12)
    rig.expect_short_answers()
    victims = watch_victims(rig, monkeypatch)
    rig.submit(*(make_request(n, [n + 5] * 3, arrival=n * 1e-6, max_tokens=40) for n in range(6)))
    rig.run()
    rig.check_stories()
    assert victims and all(victim.id != 0 for victim, _ in victims)
    ends = sorted(rig.stories, key=lambda n: next(i for i, (_, m) in enumerate(rig.messages) if _ended(m, n)))
    assert ends[0] == 0


def _ended(message, request: int) -> bool:  # type: ignore[no-untyped-def]
    return any(e.id == request and e.finish is not None for e in message.emissions)


@pytest.mark.parametrize("neighbours", [0, 3])
def test_the_last_one_that_cannot_grow_fails_alone(neighbours: int) -> None:
    """It would outgrow the whole pool; it fails when everybody else is gone or has been sent away, and they end."""
    rig = tight(8)
    rig.expect_short_answers()
    rig.submit(make_request(0, [5] * 3, max_tokens=100))
    for serial in range(1, 1 + neighbours):
        rig.submit(make_request(serial, [5 + serial] * 3, arrival=1e-6, max_tokens=25))
    rig.run()
    rig.check_stories()
    failed = rig.stories.pop(0)
    assert failed.finish is Finish.FAILED and "KV cache" in failed.emissions[-1].detail
    assert len(failed.tokens) == 8 * 4 - 3 + 1  # as far as the whole pool goes, and one that needs no room
    assert all(story.finish is Finish.LENGTH for story in rig.stories.values())


@pytest.mark.parametrize("believes_in_short_answers", [True, False])
def test_what_is_foreseen_prevents_preemptions(believes_in_short_answers: bool) -> None:
    """The same crowd, with answers of 40 tokens that are expected (after the first few) or not."""
    rig = tight(60)
    if believes_in_short_answers:
        rig.expect_short_answers()
    else:
        for _ in range(256):
            rig.scheduler.planner.kv.forecast.observe(40)
    rig.submit(*(make_request(n, [n + 5] * 10, max_tokens=40, stop_token_ids=(2,)) for n in range(30)))
    rig.run()
    rig.check_stories()
    assert bool(rig.scheduler.counters.preemptions) == believes_in_short_answers


def test_blocks_kept_for_flex_do_not_hold_up_a_prompt_that_needs_them_all() -> None:
    """And flex, too large to stay, waits for it: before, each waited for the other for ever."""
    info = default_info(blocks=11, block_size=4, slots=1, context=90)
    rig = Rig(info, make_settings(step_tokens=1, prefix_cache=False, lanes=LaneSettings(least_share=0.3)))
    prompt = list(range(3, 43))
    rig.submit(make_request(0, prompt[:16], lane=Lane.FLEX, max_tokens=1))
    rig.submit(*[make_request(serial, prompt, lane=Lane.PRIORITY, max_tokens=1) for serial in range(1, 11)])
    rig.run()
    rig.check_stories()
