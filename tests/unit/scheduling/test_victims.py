"""Who leaves when there are too few blocks."""

import hypothesis.strategies as st
from hypothesis import given
from rig import make_request

from headway.core.lane import Lane
from headway.scheduling.sequence import Sequence
from headway.scheduling.victims import choose_victim, seniority


def sequence(serial: int, lane: Lane, arrival: float, computed: int) -> Sequence:
    made = Sequence(make_request(serial, [5], arrival=arrival, lane=lane), serial, 100, frozenset())
    made.computed = computed
    return made


def crowd(*shapes: tuple[Lane, float, int]) -> list[Sequence]:
    return sorted([sequence(serial, *shape) for serial, shape in enumerate(shapes)], key=lambda s: s.order)


SHAPES = st.tuples(st.sampled_from(Lane), st.integers(0, 5).map(float), st.integers(0, 5))


@given(st.lists(SHAPES, min_size=1, max_size=10), st.none() | st.integers(0, 9))
def test_of_the_lowest_lane_the_cheapest_but_neither_the_senior_nor_the_last(
    shapes: list[tuple[Lane, float, int]], last: int | None
) -> None:
    running = crowd(*shapes)
    victim = choose_victim(running, last)
    senior = min(running, key=seniority)
    eligible = [s for s in running if s is not senior]
    spared = [s for s in eligible if s.id != last]
    if not eligible:
        assert victim is senior
        return
    assert victim is not senior
    assert victim.id != last or not spared
    for other in spared or eligible:
        assert victim.lane >= other.lane
        if victim.lane == other.lane:
            assert victim.computed <= other.computed
            if victim.computed == other.computed:
                assert victim.order >= other.order


def test_seniority_is_by_lane_then_by_age() -> None:
    running = crowd((Lane.FLEX, 0.0, 0), (Lane.DEFAULT, 1.0, 0), (Lane.PRIORITY, 9.0, 0), (Lane.DEFAULT, 2.0, 0))
    assert [s.id for s in sorted(running, key=seniority)] == [2, 1, 3, 0]


def test_by_name() -> None:
    running = crowd((Lane.DEFAULT, 0.0, 9), (Lane.DEFAULT, 1.0, 2), (Lane.FLEX, 0.0, 50), (Lane.FLEX, 1.0, 90))
    assert choose_victim(running, None).id == 2  # flex before others, however dear
    assert choose_victim(running, 2).id == 3
    assert choose_victim(running[:3:2], None).id == 1
    assert choose_victim([running[0]], 0).id == 0
