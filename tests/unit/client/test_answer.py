"""Bodies of all kinds."""

from typing import Any

import pytest

from headway.client.answer import Usage, answer_of, as_chunk, first_choice, text_of

CHAT = {
    "id": "c-7",
    "object": "chat.completion",
    "choices": [
        {"index": 1, "message": {"content": "b"}, "finish_reason": "length"},
        {"index": 0, "message": {"content": "a"}, "finish_reason": "stop"},
    ],
    "usage": {"prompt_tokens": 1, "completion_tokens": 2, "prompt_tokens_details": None},
}


def test_a_whole_answer() -> None:
    answer = answer_of(CHAT)
    assert (answer.text, answer.finish_reason, answer.truncated) == ("a", "stop", False)
    assert answer.usage == Usage(1, 2) and answer.raw is CHAT


@pytest.mark.parametrize(
    ("choice", "text"),
    [
        ({"text": "a"}, "a"),
        ({"delta": {"content": "a"}}, "a"),
        ({"delta": {"content": None, "tool_calls": []}}, ""),
        ({"delta": {}}, ""),
        ({"message": {"content": None}}, ""),
        ({}, ""),
    ],
)
def test_texts(choice: dict[str, Any], text: str) -> None:
    assert text_of(choice) == text


def test_as_one_chunk() -> None:
    chunk = as_chunk(CHAT)
    assert chunk["object"] == "chat.completion.chunk" and chunk["id"] == "c-7"
    assert text_of(first_choice(chunk)) == "a" and "message" not in first_choice(chunk)
    completion = {"object": "text_completion", "choices": [{"index": 0, "text": "a"}]}
    assert as_chunk(completion) == completion


@pytest.mark.parametrize("body", [{}, {"choices": []}, {"choices": None}, {"choices": ["a"]}])
def test_an_answer_without_choices(body: dict[str, Any]) -> None:
    assert answer_of(body).text == "" and answer_of(body).finish_reason is None
