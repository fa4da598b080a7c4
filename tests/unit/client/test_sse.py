"""Event streams, however the network cuts them."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.client.sse import Event, EventTooLarge, SseParser


def reference(body: bytes) -> list[Event]:
    """The standard's algorithm on a whole body, written the slow way."""
    body = body.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    events, data, name, own = [], None, "", None
    for line in body.split(b"\n")[:-1]:
        field, _, value = line.partition(b":")
        text = value.removeprefix(b" ").decode(errors="replace")
        if not line:
            if data is not None:
                events.append(Event(data, name or "message", own))
            data, name, own = None, "", None
        elif field == b"data":
            data = text if data is None else f"{data}\n{text}"
        elif field == b"event":
            name = text
        elif field == b"id" and b"\0" not in value:
            own = text
    return events


ENDS = st.sampled_from([b"\n", b"\r", b"\r\n"])
FIELDS = st.sampled_from(
    [b"data", b"data:", b"data: ", b"id: ", b"event:", b":", b"", b"retry: ", b"other: ", b"data :"]
)
VALUES = st.one_of(st.binary(max_size=6), st.text(max_size=4).map(str.encode)).map(
    lambda value: value.replace(b"\r", b"").replace(b"\n", b"")
)
LINES = st.one_of(
    st.tuples(FIELDS, VALUES, ENDS).map(b"".join), st.sampled_from([b"\n", b"\r", b"\r\n", b"data: {}\n\n"])
)
BODIES = st.tuples(st.sampled_from([b"", b"\xef\xbb\xbf"]), st.lists(LINES, max_size=12).map(b"".join)).map(b"".join)


@given(BODIES, st.lists(st.integers(0, 200), max_size=8))
def test_every_chunking_gives_what_the_standard_says(body: bytes, cuts: list[int]) -> None:
    expected = reference(body)
    places = sorted({0, len(body), *(cut for cut in cuts if cut < len(body))})
    parser = SseParser()
    assert [e for a, b in pairwise(places) for e in parser.feed(body[a:b])] == expected
    parser = SseParser()
    assert [e for i in range(len(body)) for e in parser.feed(body[i : i + 1])] == expected


@pytest.mark.parametrize(
    ("body", "events"),
    [
        (b"data: a\ndata: b\n\n", [Event("a\nb")]),
        (b"data\n\ndata:\n\n", [Event(""), Event("")]),
        (b"id: s-1\nevent: error\ndata:{}\n\n", [Event("{}", "error", "s-1")]),
        (b"id: s-1\ndata: a\n\ndata: b\n\n", [Event("a", id="s-1"), Event("b")]),
        (b"id: s-1\n\ndata: b\n\n", [Event("b")]),
        (b": keep-alive\n\n: ping\ndata: a\n\n", [Event("a")]),
        (b"data: a\n\ndata: cut in its mid", [Event("a")]),
        (b"data: a\n\ndata: no blank line\n", [Event("a")]),
        (b"\xef\xbb\xbfdata: a\n\n\xef\xbb\xbfdata: b\n\n", [Event("a")]),
    ],
)
def test_cases_of_the_standard(body: bytes, events: list[Event]) -> None:
    assert SseParser().feed(body) == events


@given(st.integers(1, 40), st.integers(1, 7))
def test_what_is_held_is_bounded(limit: int, size: int) -> None:
    """Neither one endless line nor endless lines of one event."""
    for endless in (b"x" * 100, b"data: " + b"x" * 100, b"data: x\n" * 100, b": " + b"x" * 100):
        parser = SseParser(limit)
        with pytest.raises(EventTooLarge):
            for at in range(0, len(endless), size):
                parser.feed(endless[at : at + size])


def test_the_bound_is_of_one_event_only() -> None:
    assert len(SseParser(16).feed(b"data: 0123456\n\n" * 1000)) == 1000
