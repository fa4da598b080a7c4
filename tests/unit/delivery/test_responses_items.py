"""Items as messages, as they are listed, and as they come back."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.errors import InvalidRequest
from headway.delivery.responses_items import chat_messages, compaction, input_items, page, read_compaction, turns
from headway.delivery.responses_schema import ResponseRequest

CALL = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}
RESULT = {"type": "function_call_output", "call_id": "c1", "output": "42"}
THOUGHT = {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]}


def kept(*items: dict[str, Any]) -> list[dict[str, Any]]:
    return input_items(ResponseRequest.model_validate({"input": list(items)}).input, 0)


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def test_what_an_assistant_did_is_one_message() -> None:
    items = kept(user("a"), THOUGHT, CALL, RESULT, {"role": "assistant", "content": "b"}, CALL, user("c"))
    function = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    assert chat_messages("be", items) == [
        {"role": "system", "content": "be"},
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": None, "reasoning_content": "hm", "tool_calls": [function]},
        {"role": "tool", "tool_call_id": "c1", "content": "42"},
        {"role": "assistant", "content": "b", "tool_calls": [function]},
        {"role": "user", "content": "c"},
    ]


def test_all_that_is_said_first_is_one_system_message() -> None:
    items = kept(
        {"role": "developer", "content": "x"}, {"role": "system", "content": [{"type": "input_text", "text": "y"}]}
    )
    assert chat_messages("be", items) == [{"role": "system", "content": "be\n\nx\n\ny"}]


def test_a_result_of_no_call_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="call_id 'c1'"):
        chat_messages(None, kept(RESULT, CALL))


def test_what_is_kept_is_what_comes_back() -> None:
    items = kept(user("a"), THOUGHT, CALL, RESULT, {"role": "assistant", "content": "b"}, compaction("s", "cmp_1"))
    assert kept(*items) == items
    assert len({item["id"] for item in items}) == len(items)


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"])))
def test_a_compaction_holds_its_summary(summary: str) -> None:
    assert read_compaction(compaction(summary, "cmp_1")["encrypted_content"]) == summary


@pytest.mark.parametrize("held", ["", "hw1.", "hw1.x", "hw1.e30=", "hw1.W10=", "hw2.e30=", "\ud800"])
def test_what_no_compaction_holds(held: str) -> None:
    with pytest.raises(InvalidRequest):
        read_compaction(held)


@given(st.lists(st.sampled_from(["system", "user", "assistant", "tool"]), max_size=12))
def test_turns_are_all_messages_in_order(roles: list[str]) -> None:
    messages = [{"role": role, "content": str(i)} for i, role in enumerate(roles)]
    head, parted = turns(messages)
    assert [*head, *(message for turn in parted for message in turn)] == messages
    assert all(message["role"] == "system" for message in head)
    assert all(turn[0]["role"] == "user" for turn in parted[1:])
    assert all(message["role"] != "user" for turn in parted for message in turn[1:])


@given(st.integers(0, 12), st.integers(1, 5), st.sampled_from(["asc", "desc"]))
def test_pages_are_the_list(count: int, limit: int, order: str) -> None:
    items = [{"id": f"i{i}"} for i in range(count)]
    got: list[dict[str, Any]] = []
    after = None
    while True:
        listed = page(items, limit, order, after)
        got += listed["data"]
        assert len(listed["data"]) <= limit
        if not listed["has_more"]:
            break
        after = listed["last_id"]
    assert got == (items if order == "asc" else items[::-1])


def test_a_page_after_nothing() -> None:
    with pytest.raises(InvalidRequest):
        page([{"id": "a"}], 1, "asc", "b")
