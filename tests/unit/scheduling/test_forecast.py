"""Output lengths as they are learned, and the blocks they will need."""

from array import array

import hypothesis.strategies as st
import pytest
from hypothesis import given
from rig import make_request

from headway.scheduling.forecast import PRIOR, QUANTILE, REMEMBERED, Forecast
from headway.scheduling.sequence import Sequence

SIZE = 4


def sequence(prompt: int, emitted: int = 0, ends: bool = True, **sampling: int) -> Sequence:
    """One that has emitted so much."""
    request = make_request(0, [5] * prompt, **({"max_tokens": 1000} | sampling))
    made = Sequence(request, 0, 2000, frozenset({2} if ends else ()))
    made.known.extend([6] * emitted)
    return made


def taught(*lengths: int) -> Forecast:
    """One that has forgotten its prior."""
    forecast = Forecast(SIZE)
    for _ in range(-(-REMEMBERED // len(lengths))):
        for length in lengths:
            forecast.observe(length)
    return forecast


def test_a_prior_until_something_is_known() -> None:
    assert Forecast(SIZE).output(0) == sorted(PRIOR)[int(QUANTILE * (len(PRIOR) - 1))]
    assert taught(7).output(0) == 7


@given(st.lists(st.integers(1, 300), min_size=1, max_size=600), st.integers(0, 400))
def test_a_quantile_of_those_that_were_longer(lengths: list[int], emitted: int) -> None:
    forecast = Forecast(SIZE)
    for length in lengths:
        forecast.observe(length)
    recent = ([*PRIOR, *lengths])[-REMEMBERED:]
    longer = sorted(length for length in recent if length > emitted)
    expected = forecast.output(emitted)
    assert expected > emitted
    if longer:
        assert expected == longer[int(QUANTILE * (len(longer) - 1))]
    else:
        assert expected == emitted + SIZE


def test_an_end_is_within_what_is_allowed_and_asked_for() -> None:
    forecast = taught(20)
    assert forecast.end(sequence(10)) == 30
    assert forecast.end(sequence(10, max_tokens=5)) == 15
    assert forecast.end(sequence(10, min_tokens=50)) == 60
    assert forecast.end(sequence(10, emitted=20)) == 30 + SIZE  # longer than any
    assert forecast.end(sequence(10, ends=False, max_tokens=500)) == 510  # nothing but its length ends it
    assert [forecast.blocks(sequence(n)) for n in (4, 5)] == [6, 7]


def true_peak(forecast: Forecast, running: list[Sequence]) -> int:
    """Each grows by a token a step and gives its blocks back at its expected end."""
    ends = [(len(s.known), forecast.end(s)) for s in running]
    most = 0
    for step in range(max(end - known for known, end in ends) + 1):
        most = max(most, sum(-(-(known + step) // SIZE) for known, end in ends if known + step <= end))
    return most


@given(
    st.lists(st.tuples(st.integers(1, 60), st.integers(0, 60), st.booleans()), min_size=1, max_size=12),
    st.lists(st.integers(1, 80), min_size=1, max_size=20),
)
def test_the_peak_is_within_a_block_a_sequence_of_what_it_will_be(
    shapes: list[tuple[int, int, bool]], lengths: list[int]
) -> None:
    """For private blocks it reckons in tokens: it may be short of the roundings up to whole blocks, less than one a
    sequence, and long by as much; never does it say less than is held now."""
    forecast = taught(*lengths)
    running = [sequence(prompt, emitted, ends, max_tokens=100) for prompt, emitted, ends in shapes]
    held = sum(-(-len(s.known) // SIZE) for s in running)
    peak, true = forecast.peak(running, held), true_peak(forecast, running)
    assert peak > held
    assert true - len(running) < peak <= true + len(running) + 1


def test_what_a_window_hides_is_not_reckoned_with() -> None:
    """Of two groups one sees 8 tokens: at most three blocks of four."""
    forecast = Forecast(SIZE, (0, 8))
    grown = sequence(200, ends=False, max_tokens=80)
    assert forecast.blocks(grown) == 50  # its prompt comes in with all its blocks
    grown.tables = (array("I", [1]),)  # and then gives back those of what it no longer sees
    assert forecast.blocks(grown) == (70 + 3 + 1) // 2
    assert forecast.peak([grown], 27) == 27 + 80 // SIZE // 2 + 1
    assert Forecast(SIZE, (8,)).peak([grown], 3) == 3 + 1


def test_those_that_end_first_make_room_for_the_others() -> None:
    """Two of 100 known tokens: one is about to end, the other will grow by as many."""
    forecast = taught(10)
    short, long = sequence(100, ends=False, max_tokens=4), sequence(100, ends=False, max_tokens=100)
    assert forecast.peak([short, long], 50) == 50 + 2 + 1  # both by four tokens; then one alone to 50
    assert forecast.peak([long, sequence(100, ends=False, max_tokens=100)], 50) == 100 + 1


@pytest.mark.parametrize("count", [2, 10])
def test_shared_prefixes_are_counted_once(count: int) -> None:
    """`held` says how much there is; the known tokens only who has what part of it."""
    forecast = taught(8)
    running = [sequence(400) for _ in range(count)]
    shared = 100 + count
    assert forecast.peak(running, shared) == shared + count * 8 // SIZE + 1
    assert (forecast.peak([], 0), forecast.peak([], 5)) == (1, 6)
