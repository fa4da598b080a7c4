"""Very long prompts beside short ones: both progress, and long ones are served one after the other."""

from collections.abc import Iterator
from statistics import mean

import pytest
from rig import make_request, make_settings
from watch import Watched

from headway.core.config import LaneSettings
from headway.core.lane import Lane
from headway.core.request import EngineRequest
from headway.model.fake_runner import default_info

LONG = 4000
LONG_ID = 10**6


def long_prompts(count: int, arrival: float = 0.0, lane: Lane = Lane.DEFAULT) -> Iterator[EngineRequest]:
    for n in range(count):
        yield make_request(
            LONG_ID + n, [n + 5] * LONG, arrival=arrival + n * 1e-3, max_tokens=4, lane=lane, ignore_eos=True
        )


def short_prompts(count: int, arrival: float = 0.0) -> Iterator[EngineRequest]:
    """All at once: more than there is time for."""
    for n in range(count):
        yield make_request(n, [n % 900 + 3] * 100, arrival=arrival, max_tokens=8, ignore_eos=True)


def watched(share: float, long_tokens: int = 2000, **settings: object) -> Watched:
    info = default_info(blocks=8192, context=8192, slots=64, max_batch_tokens=512)
    lanes = LaneSettings(long_prompt_tokens=long_tokens, long_prompt_share=share)
    chosen = make_settings(step_tokens=512, sequences=64, lanes=lanes, prefix_cache=False, **settings)  # type: ignore[arg-type]
    made = Watched(chosen, info=info)
    made.submit(make_request(LONG_ID + 99, [3] * 50, max_tokens=5000, ignore_eos=True))  # somebody who waits for steps
    made.play(short_prompts(60), 10.0)  # costs are learned
    return made


def prompt_tokens(w: Watched, since: float) -> tuple[int, int]:
    """Of long prompts and of short ones, in steps where both had some to compute."""
    long = short = 0
    for seen in w.steps:
        works = list(zip(seen.plan.sequences, seen.plan.batch.work, strict=True))
        mine = sum(len(work.tokens) for s, work in works if s.long and len(work.tokens) > 1)
        others = sum(len(work.tokens) for s, work in works if not s.long and len(work.tokens) > 1)
        if seen.begin >= since and mine and others:
            long, short = long + mine, short + others
    return long, short


@pytest.mark.parametrize("share", [0.25, 0.5, 0.75])
def test_short_ones_get_their_part_of_the_chunk_and_the_long_one_progresses(share: float) -> None:
    w = watched(share)
    begin = w.clock.now()
    w.submit(*long_prompts(1, begin), *(_later(r, begin) for r in short_prompts(100)))
    w.engine.step()
    while w.scheduler.waiting.count(Lane.DEFAULT) and LONG_ID not in w.ends:
        w.engine.step()
    long, short = prompt_tokens(w, begin)
    assert short > 1000
    assert long / (long + short) == pytest.approx(share, abs=0.08)


def _later(request: EngineRequest, begin: float) -> EngineRequest:
    return make_request(request.id + 10_000, [request.id + 3] * 100, arrival=begin + 0.01, max_tokens=8)


def test_short_ones_do_not_wait_for_a_long_one() -> None:
    """What they would without: behind four thousand tokens that came a moment earlier."""

    def firsts(long_tokens: int) -> float:
        w = watched(0.5, long_tokens)
        begin = w.clock.now()
        w.submit(*long_prompts(1, begin), *(_later(r, begin) for r in short_prompts(5)))
        w.play(iter(()), begin + 60.0)
        return mean(w.first(10_000 + n) for n in range(5))

    assert firsts(2000) < 0.5 * firsts(LONG + 1)


def test_long_ones_are_served_one_after_the_other() -> None:
    """The k-th has its first token after about k times what one takes alone; and not all at the end of all."""

    def firsts(count: int) -> list[float]:
        w = watched(0.5)
        begin = w.clock.now()
        w.submit(*long_prompts(count, begin))
        w.play(iter(()), begin + 120.0)
        return [w.first(LONG_ID + n) for n in range(count)]

    [alone] = firsts(1)
    assert firsts(4) == pytest.approx([k * alone for k in (1, 2, 3, 4)], rel=0.1)


def test_a_long_one_gets_all_when_nobody_else_wants_it() -> None:
    """Alone it is no slower for being a long one."""

    def first(long_tokens: int) -> float:
        w = watched(0.5, long_tokens)
        begin = w.clock.now()
        w.submit(*long_prompts(1, begin))
        w.play(iter(()), begin + 60.0)
        return w.first(LONG_ID)

    assert first(2000) == pytest.approx(first(LONG + 1), rel=0.01)
