import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headway.serving.json_scanner import JsonScanner

VALUES: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
OBJECTS = st.dictionaries(st.text(max_size=4), VALUES, max_size=3)


def accepted(text: str) -> int | None:
    """How many characters make the object; None if it never ends or something cannot belong to it."""
    scanner = JsonScanner()
    for count, char in enumerate(text, 1):
        if not scanner.push(char):
            return None
        if scanner.done:
            return count
    return None


@given(OBJECTS, st.sampled_from([None, 1]), st.booleans())
def test_every_object_is_taken_to_its_end_and_no_further(value: Any, indent: int | None, ascii: bool) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii)
    assert accepted(text) == len(text)
    assert accepted(f" \n{text}}} more") == len(text) + 2
    assert accepted(text[:-1]) is None


@given(OBJECTS, st.data())
def test_it_accepts_what_json_accepts(value: Any, data: st.DataObject) -> None:
    text = json.dumps(value)
    at = data.draw(st.integers(0, len(text) - 1))
    changed = (
        text[:at]
        + data.draw(st.sampled_from(['"', "\\", "{", "}", "[", "]", ",", ":", "0", "-", "e", " ", ""]))
        + text[at + 1 :]
    )
    try:
        good = isinstance(json.loads(changed), dict)
    except ValueError:
        good = False
    count = accepted(changed)
    assert (count is not None and not changed[count:].strip(" \t\r\n")) == good


def test_what_cannot_belong_is_noticed_at_once() -> None:
    for text in [
        '{"a":x',
        '{"a":1,}',
        "{a",
        '{"a":01,',
        '{"a":tru,',
        '{"a":"\n',
        '{"a":"\\x',
        "[",
        '{"a":]',
        '{"a":nul}',
    ]:
        scanner = JsonScanner()
        assert [scanner.push(char) for char in text] == [True] * (len(text) - 1) + [False], text
