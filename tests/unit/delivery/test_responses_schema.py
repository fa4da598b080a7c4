"""Every field that OpenAI documents is listed: none is unknown, none is silently ignored."""

from typing import Any, get_type_hints

import pytest
from openai.types.responses import InputTokenCountParams, ResponseCompactParams
from openai.types.responses.response_create_params import ResponseCreateParamsStreaming
from pydantic import ValidationError

from headway.delivery.responses_schema import CompactRequest, InputTokensRequest, ResponseRequest

LATER = {"access_programs", "background_options", "image", "moderation"}  # than openai-python 2.0
EXTRAS = {
    "top_k", "min_p", "seed", "stop", "timeout", "on_timeout",  # Headway's own
    "presence_penalty", "frequency_penalty",  # of Open Responses
}  # fmt: skip


def fields(params: Any) -> set[str]:
    return set(get_type_hints(params))


def test_every_documented_field_is_listed() -> None:
    given = fields(ResponseCreateParamsStreaming) | LATER | EXTRAS
    assert given == set(ResponseRequest.model_fields)
    assert fields(InputTokenCountParams) | {"personality"} == set(InputTokensRequest.model_fields)
    assert fields(ResponseCompactParams) | {"image", "service_tier", "conversation"} >= set(CompactRequest.model_fields)
    assert fields(ResponseCompactParams) <= set(CompactRequest.model_fields)


@pytest.mark.parametrize("name", sorted(ResponseRequest.model_fields))
def test_null_is_taken_and_an_object_is_refused(name: str) -> None:
    ResponseRequest.model_validate_json('{"' + name + '":null}')
    if name == "stop":
        return  # a chat's own check sees it
    with pytest.raises(ValidationError):
        ResponseRequest.model_validate_json('{"' + name + '":{"deep":{"er":[1,2]}}}')


def test_a_thousand_wrong_items_are_one_error() -> None:
    with pytest.raises(ValidationError) as caught:
        ResponseRequest.model_validate_json('{"input":[' + "1," * 1000 + "1]}")
    assert caught.value.error_count() == 1
