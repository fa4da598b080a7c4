"""Every field that OpenAI documents is listed: none is unknown, none is silently ignored."""

import json
from typing import Any

import pytest
from pydantic import ValidationError

from headway.delivery.schemas import ChatRequest, CompletionRequest

# From openai-python 3.51 (../shared/CLIENTS.md).
CHAT = """messages model audio frequency_penalty function_call functions logit_bias logprobs max_completion_tokens
 max_tokens metadata modalities moderation n parallel_tool_calls prediction presence_penalty prompt_cache_key
 prompt_cache_options prompt_cache_retention reasoning_effort response_format safety_identifier seed service_tier stop
 store stream stream_options temperature tool_choice tools top_logprobs top_p user verbosity web_search_options"""
COMPLETION = """model prompt best_of echo frequency_penalty logit_bias logprobs max_tokens n presence_penalty seed stop
 stream stream_options suffix temperature top_p user"""
CHAT_EXTRAS = {"chat_template_kwargs"}  # an object
EXTRAS = {
    "return_token_ids",
    "structured_outputs",
    "timeout",
    "on_timeout",
    "top_k",
    "min_p",
    "repetition_penalty",
    "min_tokens",
    "ignore_eos",
    "stop_token_ids",
}


def test_every_documented_field_is_listed() -> None:
    assert set(CHAT.split()) | EXTRAS | CHAT_EXTRAS == set(ChatRequest.model_fields)
    assert set(COMPLETION.split()) | EXTRAS <= set(CompletionRequest.model_fields)


@pytest.mark.parametrize("name", sorted({*CHAT.split(), *EXTRAS} - {"messages"}))
def test_null_is_taken_and_an_object_is_refused(name: str) -> None:
    start = '{"messages":[{"role":"user","content":"x"}],"' + name + '":'
    ChatRequest.model_validate_json(start + "null}")
    with pytest.raises(ValidationError):
        ChatRequest.model_validate_json(start + '{"deep":{"er":[1,2]}}}')


def test_a_thousand_wrong_items_are_one_error() -> None:
    with pytest.raises(ValidationError) as caught:
        ChatRequest.model_validate_json('{"messages":[' + "1," * 1000 + "1]}")
    assert caught.value.error_count() == 1


@pytest.mark.parametrize(
    "choice",
    [
        "auto",
        {"type": "function", "function": {"name": "f"}},
        {
            "type": "allowed_tools",
            "allowed_tools": {"mode": "auto", "tools": [{"type": "function", "function": {"name": "f"}}]},
        },
    ],
)
def test_a_tool_choice_is_written_as_it_was_read(choice: Any) -> None:
    """By its text the second sending of a resumable request is known."""
    body = {"messages": [{"role": "user", "content": "x"}], "tool_choice": choice}
    read = ChatRequest.model_validate_json(json.dumps(body))
    assert json.loads(read.model_dump_json(exclude_unset=True)) == body
