"""No event is lost and none is taken twice."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.client.event_reader import Dropped
from headway.client.position import Position
from headway.client.sse import Event


@given(st.lists(st.integers(1, 12)))
def test_only_the_next_event_counts(numbers: list[int]) -> None:
    """Whatever is repeated or left out."""
    position, taken = Position(), []
    for number in [1, *numbers]:
        event = Event("{}", id=f"chatcmpl-a-{number}")
        position.find(event, "chatcmpl-a")
        with suppress(Dropped):
            if position.advance(event):
                taken.append(number)
    assert taken == list(range(1, position.seen + 1)) and position.stream == "chatcmpl-a"


@pytest.mark.parametrize(
    ("own", "chunk"),
    [("a-2", "a"), ("a-1", "b"), ("a-1", None), ("1", ""), ("-1", ""), ("a-\N{SUPERSCRIPT TWO}", "a"), (None, "a")],
)
def test_other_ids_say_nothing(own: str | None, chunk: str | None) -> None:
    position = Position()
    for _ in range(2):
        position.find(Event("{}", id=own), chunk)
        assert position.advance(Event("{}", id=own)) and position.stream is None
