"""Nothing is given twice."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.client.shown import Differs, Shown


def cut(text: str, places: list[int]) -> list[str]:
    ends = sorted({0, len(text), *(place for place in places if place < len(text))})
    return [text[a:b] for a, b in pairwise(ends)]


PLACES = st.lists(st.integers(0, 30), max_size=8)


@given(st.text(max_size=30), st.lists(st.tuples(PLACES, st.integers(0, 8))), PLACES)
def test_repeats_of_one_text_give_it_once(text: str, attempts: list[tuple[list[int], int]], last: list[int]) -> None:
    shown = Shown("")
    given = []
    for places, pieces in attempts:
        given += [shown.take(piece) for piece in cut(text, places)[:pieces]]
        assert shown.all == "".join(given) and text.startswith(shown.all)
        shown.restart()
        assert shown.behind is bool(shown.all)
    given += [shown.take(piece) for piece in cut(text, last)]
    assert "".join(given) == shown.all == text and not shown.behind


@given(st.text(min_size=1, max_size=10), st.text(max_size=10), PLACES)
def test_another_text_is_noticed_before_it_is_given(first: str, second: str, places: list[int]) -> None:
    shown = Shown("")
    shown.take(first)
    shown.restart()
    given = first
    try:
        for piece in cut(second, places):
            given += shown.take(piece)
    except Differs:
        assert not second.startswith(first)
    else:
        assert second.startswith(first) or (shown.behind and first.startswith(second))
    assert shown.all == given


def test_token_ids() -> None:
    shown: Shown[list[int]] = Shown([])
    assert [shown.take(piece) for piece in ([1, 2], [], [3])] == [[1, 2], [], [3]]
    shown.restart()
    assert [shown.take(piece) for piece in ([1], [2, 3, 4], [5])] == [[], [4], [5]]
    assert shown.all == [1, 2, 3, 4, 5]
    shown.restart()
    with pytest.raises(Differs):
        shown.take([1, 3])
