"""Lanes on a manual clock: flex fills what the others leave and yields at once, and yet nobody starves."""

import random
from collections import defaultdict
from collections.abc import Iterator
from statistics import mean

import pytest
from rig import make_request, make_settings
from watch import Watched

from headway.core.config import LaneSettings, PromiseSettings
from headway.core.lane import Lane
from headway.core.request import EngineRequest
from headway.model.fake_runner import default_info
from headway.scheduling.least_share import MOST_OWED
from headway.scheduling.pace import LEAST_CHUNK, MARGIN

GAP = 0.05
LOW = 10**6  # ids of the requests of the lower lane begin here


def prompt_of(rng: random.Random, tokens: int) -> list[int]:
    return [rng.randrange(3, 900) for _ in range(tokens)]


def below(lane: Lane, count: int, tokens: int = 100, out: int = 20) -> Iterator[EngineRequest]:
    """All there from the beginning."""
    rng = random.Random(1)
    for n in range(count):
        yield make_request(LOW + n, prompt_of(rng, tokens), lane=lane, max_tokens=out, ignore_eos=True)


def flood(lane: Lane, rate: float, begin: float = 0.0, tokens: int = 100, out: int = 32) -> Iterator[EngineRequest]:
    """So many a second, for ever."""
    rng, time, serial = random.Random(2), begin, 0
    while True:
        serial += 1
        yield make_request(serial, prompt_of(rng, tokens), arrival=time, lane=lane, max_tokens=out, ignore_eos=True)
        time += rng.expovariate(rate)


def chain(*sources: Iterator[EngineRequest]) -> Iterator[EngineRequest]:
    for source in sources:
        yield from source


def lanes(least_share: float, sequences: int = 64, itl_ms: float = GAP * 1e3, step_tokens: int = 512) -> Watched:
    settings = make_settings(
        step_tokens=step_tokens,
        sequences=sequences,
        promise=PromiseSettings(itl_ms=itl_ms),
        lanes=LaneSettings(least_share=least_share),
    )
    return Watched(settings)


@pytest.mark.parametrize("rate", [3.0, 9.0])
def test_flex_yields_within_one_step(rate: float) -> None:
    """Flex has the server for itself, then others come. From the first step that has any of these on, flex has only
    what the predicted time leaves, and every interactive stream gets its token in every step."""
    watched = lanes(least_share=0.0)
    watched.play(chain(below(Lane.FLEX, 500, out=60), flood(Lane.DEFAULT, rate, begin=4.0)), 14.0)
    mixed = [s for s in watched.steps if s.begin > 4.0]
    assert mean(s.plan.lane_tokens[Lane.FLEX] > 0 for s in mixed) > 0.05, "flex fills what is left"
    assert sum(s.plan.decodes > 0 for s in mixed) > 100
    for seen in mixed:
        flex = seen.plan.lane_tokens[Lane.FLEX]
        if flex and seen.plan.tokens > flex:
            assert seen.predicted <= max(seen.time, MARGIN * GAP) * 1.01
    sampled: dict[int, list[int]] = defaultdict(list)
    for index, seen in enumerate(mixed):
        for sequence, work in zip(seen.plan.sequences, seen.plan.batch.work, strict=True):
            if sequence.lane is not Lane.FLEX and work.sample:
                sampled[sequence.id].append(index)
    assert len(sampled) > 20
    for steps in sampled.values():
        assert steps == list(range(steps[0], steps[-1] + 1)), "an interactive stream without its token"
    alone = lanes(least_share=0.0)
    alone.play(flood(Lane.DEFAULT, rate, begin=4.0), 14.0)
    ended = [n for n in alone.ends if n in watched.ends]
    assert len(ended) > 20
    for request in ended:  # no later than by a step or two that flex fills up to the gap
        assert mean(watched.gaps(request)) <= GAP
        if rate < 5:
            assert watched.first(request) <= alone.first(request) + 0.25


def test_flex_alone_fills_steps_up_to_the_gap() -> None:
    watched = lanes(least_share=0.0)
    watched.play(below(Lane.FLEX, 300), 10.0)
    times = [s.predicted for s in watched.steps if s.begin > 2.0]
    assert max(times) <= GAP * 1.05
    assert mean(times) > 0.85 * MARGIN * GAP
    unbound = lanes(least_share=0.0, itl_ms=0.0)
    unbound.play(below(Lane.FLEX, 300), 10.0)
    assert max(s.plan.tokens for s in unbound.steps) == 512


OVER = [(Lane.PRIORITY, Lane.DEFAULT), (Lane.PRIORITY, Lane.FLEX), (Lane.DEFAULT, Lane.FLEX)]


@pytest.mark.parametrize("share", [0.02, 0.2])
@pytest.mark.parametrize(("above", "lane"), OVER)
def test_a_lane_gets_its_least_share_of_what_those_before_it_get(above: Lane, lane: Lane, share: float) -> None:
    """`least_share` times the tokens of the lanes before it, less what may still be owed: MOST_OWED and a piece."""
    watched = lanes(share)
    watched.play(chain(below(lane, 300), flood(above, 60.0)), 30.0)
    tokens = watched.lane_tokens()
    assert watched.scheduler.waiting.count(above) > 100, "a flood"
    assert tokens[lane] >= share * tokens[above] - MOST_OWED - LEAST_CHUNK
    assert tokens[lane] <= 1.1 * share * tokens[above] + 600  # (and what came before the flood)
    assert sum(n >= LOW for n in watched.ends) >= 0.8 * share * tokens[above] / 120 - 2
    recomputed = watched.scheduler.counters.recomputed_tokens
    assert recomputed <= 0.01 * sum(tokens)


@pytest.mark.parametrize(("above", "lane"), OVER)
def test_without_a_least_share_it_starves(above: Lane, lane: Lane) -> None:
    watched = lanes(0.0)
    watched.play(chain(flood(above, 60.0)), 1.0)
    for request in below(lane, 50):
        watched.submit(request)
    before = watched.lane_tokens()[above]
    watched.play(flood_later(above), 20.0)
    assert watched.lane_tokens()[above] > before + 10_000 and watched.lane_tokens()[lane] == 0


def flood_later(lane: Lane) -> Iterator[EngineRequest]:
    for request in flood(lane, 60.0, begin=1.0):
        yield make_request(
            request.id + 5000, [request.id % 900 + 3] * 100, arrival=request.arrival, lane=lane, max_tokens=32
        )


def test_the_least_share_holds_for_large_steps_too() -> None:
    watched = lanes(0.2, itl_ms=0.0)
    watched.play(chain(below(Lane.FLEX, 300), flood(Lane.DEFAULT, 60.0)), 20.0)
    tokens = watched.lane_tokens()
    assert tokens[Lane.FLEX] >= 0.2 * tokens[Lane.DEFAULT] - MOST_OWED - LEAST_CHUNK


def test_flex_gets_somewhere_where_all_slots_are_taken() -> None:
    """Its least share must not be spent on computing the same again and again."""
    watched = lanes(0.2, sequences=8)
    watched.scheduler.blocks._hasher = None  # no prefix cache
    watched.play(chain(below(Lane.FLEX, 50), flood(Lane.DEFAULT, 60.0)), 30.0)
    counters = watched.scheduler.counters
    assert sum(n >= LOW for n in watched.ends) >= 10
    assert counters.recomputed_tokens <= watched.lane_tokens()[Lane.FLEX] / 2


def test_a_large_flex_prompt_gets_its_blocks_in_the_end() -> None:
    """Up to SAFE_PART of all, blocks that fall free are kept for it one by one, and then it need not leave again."""
    info = default_info(blocks=80, context=512, slots=64, max_batch_tokens=512)
    settings = make_settings(step_tokens=512, sequences=64, lanes=LaneSettings(least_share=0.1))
    watched = Watched(settings, info=info)
    watched.play(chain(flood(Lane.DEFAULT, 60.0, tokens=50)), 1.0)
    watched.submit(*below(Lane.FLEX, 1, tokens=300))
    watched.play(flood_later(Lane.DEFAULT), 60.0)
    assert LOW in watched.ends
