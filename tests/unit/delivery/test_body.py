"""The bound on a body's parts counts what is JSON, not what its texts look like."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.errors import InvalidRequest
from headway.delivery import body
from headway.delivery.body import check_parts

TEXT = st.text('ab"\\,[]{}:\n\N{GRINNING FACE}', max_size=12)
JSON = st.recursive(
    st.none() | st.integers() | TEXT,
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(TEXT, inner, max_size=6),
    max_leaves=40,
)


def parts(value: Any) -> int:
    if isinstance(value, str):
        return 1
    if isinstance(value, list):
        return 1 + sum(map(parts, value))
    if isinstance(value, dict):
        return 1 + sum(1 + parts(item) for item in value.values())
    return 0


def commas(value: Any) -> int:
    items = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
    return max(0, len(items) - 1) + sum(map(commas, items))


def is_taken(data: bytes) -> bool:
    try:
        check_parts(data)
    except InvalidRequest as error:
        assert error.code == "body_too_complex"
        return False
    return True


@given(JSON, st.booleans())
def test_counts_exactly(value: Any, ascii_only: bool) -> None:
    data = json.dumps(value, ensure_ascii=ascii_only).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(body, "MOST_PARTS", parts(value))
        patch.setattr(body, "MOST_VALUES", commas(value))
        assert is_taken(data)
        if parts(value):
            patch.setattr(body, "MOST_PARTS", parts(value) - 1)
            assert not is_taken(data)
            patch.setattr(body, "MOST_PARTS", parts(value))
        if commas(value) and len(data) >= body.MOST_PARTS:
            patch.setattr(body, "MOST_VALUES", commas(value) - 1)
            assert not is_taken(data)


def test_a_long_text_is_one_part_whatever_is_in_it() -> None:
    for text in ('{"a": ["b", "c"]}, ' * 100_000, "\\" * 500_001, '\\"' * 300_000, "one, two, " * 300_000):
        assert is_taken(json.dumps({"prompt": text}).encode())


@pytest.mark.parametrize(
    "data",
    [
        "{" + ",".join(f'"k{i}":1' for i in range(100_000)) + "}",
        "[" + ",".join(['""'] * 100_000) + "]",
        "[" + ",".join(["{}"] * 100_000) + "]",
        "[" + ",".join(["1"] * 300_000) + "]",
        '{"a":' + "[" * 100_000,
        '"' * 100_000,
    ],
    ids=lambda data: data[:20],
)
def test_too_many_parts(data: str) -> None:
    assert not is_taken(data.encode())
