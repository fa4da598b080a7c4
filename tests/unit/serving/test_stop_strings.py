from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from headway.serving.stop_strings import StopStrings

LETTERS = st.text("ab", min_size=1, max_size=5)


def first_end(text: str, stops: list[str]) -> tuple[int, int] | None:
    """(end, length) of the match that completes first, the longest of equals; the slow way."""
    for end in range(1, len(text) + 1):
        ending = [len(stop) for stop in stops if text[:end].endswith(stop)]
        if ending:
            return end, max(ending)
    return None


def cut(text: str, borders: list[int]) -> list[str]:
    places = sorted({min(b, len(text)) for b in borders} | {0, len(text)})
    return [text[a:b] for a, b in pairwise(places)]


@given(st.text("ab", max_size=30), st.lists(LETTERS, min_size=1, max_size=4), st.lists(st.integers(0, 30)))
def test_finds_the_same_match_however_the_text_is_cut(text: str, stops: list[str], borders: list[int]) -> None:
    expected = first_end(text, stops)
    matcher = StopStrings(stops)
    read = 0
    for piece in cut(text, borders):
        match = matcher.push(piece)
        if match is not None:
            assert (read + match.after, match.length) == expected
            return
        read += len(piece)
        held = matcher.held
        assert any(stop.startswith(text[read - held : read]) for stop in stops)
        longest = max(
            n for n in range(read + 1) if any(s.startswith(text[read - n : read]) and n < len(s) for s in stops)
        )
        assert held == longest
    assert expected is None


def test_hostile_stop_is_linear() -> None:
    matcher = StopStrings(["a" * 1023 + "b"] * 16)
    assert matcher.push("a" * 20_000) is None
    assert matcher.held == 1023
