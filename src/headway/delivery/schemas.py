"""Request bodies. Every field OpenAI documents is here: honoured, accepted without effect, or refused by name."""

import re
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    FailFast,
    Field,
    WithJsonSchema,
)
from pydantic_core import PydanticCustomError

from headway.delivery.schema import NO_EFFECT, Refuse, Refused, RefusedFlag, RefusedList, Schema
from headway.delivery.tool_schemas import Effort, Tool, ToolCall, ToolChoice

LONGEST_TIMEOUT_S = 86_400.0
MOST = 2**31 - 1  # of a count: what the engine's own integers hold
# Less would let penalised logits overflow; so far from 1 the text is noise anyway.
LEAST_REPETITION = 0.01


class StreamOptions(Schema):
    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None
    include_obfuscation: RefusedFlag = None
    coalesce_ms: int | None = Field(
        None, ge=0, le=1000, description="Tokens that come within so long may be joined into one event."
    )
    resumable: bool | None = Field(
        None,
        description="Events carry ids, and a reader who lost the connection can go on: GET /v1/streams/{id}, or "
        "the same request again with Last-Event-ID. promise.on_stream_drop says what happens meanwhile.",
    )


TOKEN_KEY = re.compile(r"0|-?[1-9][0-9]{0,9}")


def _token_key(key: Any) -> int:
    """A token id that is a key in JSON: one spelling for one id, so that no two entries mean the same."""
    if not isinstance(key, str) or not TOKEN_KEY.fullmatch(key):
        raise PydanticCustomError("token_id_type", "must be a token id")
    return int(key)


TokenKey = Annotated[int, BeforeValidator(_token_key)]


ServiceTier = Annotated[
    Literal["auto", "default", "flex", "priority", "fast"] | None,
    Field(
        description="The lane: priority (or fast) goes before default, and flex fills what the two leave. auto: that "
        "of the API key, which is also the highest that it gets; the response shows the one that counted."
    ),
]
OnTimeout = Annotated[
    Literal["error", "truncate"] | None,
    Field(
        description="What becomes of a request at its deadline (`timeout`, X-Request-Timeout or the server's own). "
        "error, the default: it fails with deadline_exceeded. truncate: it ends with the text it has and "
        "finish_reason length, if it has at least one token."
    ),
]
# What names something; nobody needs more, and what is bounded fills no memory. Those of metadata are OpenAI's bounds.
Label = Annotated[str, Field(max_length=512)]
Metadata = Annotated[dict[Annotated[str, Field(max_length=64)], Label], Field(max_length=16)]
User = Annotated[
    Annotated[str, Field(max_length=4096)] | None,
    Field(description="On a server without API keys: the tenant, who shares fairly with others. Else without effect."),
]


class JsonSchema(Schema):
    """A JSON schema and what it is called."""

    name: str = Field(max_length=64)
    description: str | None = None
    schema_: Annotated[Any, Field(alias="schema")] = None
    strict: bool | None = Field(None, description="The output follows the schema whether or not this is given.")


class ResponseFormat(Schema):
    """What the answer must be."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None


class StructuredOutputs(Schema):
    """What the output must be: exactly one of json (a schema), json_object, regex, choice and grammar (Lark)."""

    json_: Annotated[Any, Field(alias="json")] = None
    json_object: bool | None = None
    regex: str | None = None
    choice: list[str] | None = None
    grammar: str | None = None
    disable_fallback: bool | None = NO_EFFECT  # there is nothing to fall back to
    # Refused: white space is bounded, and schemas mean what they say.
    disable_any_whitespace: RefusedFlag = None
    disable_additional_properties: RefusedFlag = None
    whitespace_pattern: Refused = None
    structural_tag: Refused = None


Stop = Annotated[
    Any,
    AfterValidator(lambda value: _check_stop(value)),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}),
]


class Common(Schema):
    """What both endpoints take."""

    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    # Sampling.
    temperature: float | None = Field(None, ge=0, le=2)
    top_p: float | None = Field(None, gt=0, le=1)
    top_k: int | None = Field(None, ge=-1, le=MOST)  # -1 and 0: off
    min_p: float | None = Field(None, ge=0, le=1)
    repetition_penalty: float | None = Field(None, ge=LEAST_REPETITION, le=10)
    presence_penalty: float | None = Field(None, ge=-2, le=2)
    frequency_penalty: float | None = Field(None, ge=-2, le=2)
    logit_bias: dict[TokenKey, Annotated[float, Field(ge=-100, le=100)]] | None = None
    seed: int | None = Field(None, ge=-(2**63), lt=2**64)
    # Length and end.
    max_tokens: int | None = Field(None, ge=1, le=MOST)
    min_tokens: int | None = Field(None, ge=0, le=MOST)
    ignore_eos: bool | None = None
    stop: Stop = None
    stop_token_ids: Annotated[list[int] | None, Field(max_length=1024)] = None
    timeout: float | None = Field(None, gt=0, le=LONGEST_TIMEOUT_S)  # seconds from HTTP arrival to the end
    on_timeout: OnTimeout = None
    structured_outputs: StructuredOutputs | None = None
    # Who goes first.
    service_tier: ServiceTier = None
    user: User = None
    # Accepted without effect.
    metadata: Metadata | None = NO_EFFECT
    safety_identifier: Label | None = NO_EFFECT
    prompt_cache_key: Label | None = NO_EFFECT
    prompt_cache_options: Metadata | None = NO_EFFECT
    prompt_cache_retention: Label | None = NO_EFFECT
    store: RefusedFlag = None
    n: int | None = Field(None, ge=1, le=MOST, description="Answers to one prompt, which is computed once.")
    return_token_ids: bool | None = Field(
        None, description="Shows prompt_token_ids and the token_ids of each piece of text, an end token not among them."
    )


def _check_stop(value: Any) -> Any:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return value
    raise PydanticCustomError("stop_type", "must be a string or a list of strings")


class TextPart(Schema):
    type: Literal["text"]
    text: str


class Message(Schema):
    """One message of a chat. `content` may be left out where an assistant has called tools or reasoned."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Annotated[
        Any,
        AfterValidator(lambda value: _check_content(value)),
        WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": TextPart.model_json_schema()}]}),
    ] = None
    name: Label | None = None  # for templates that show it
    refusal: Refused = None
    audio: Refused = None
    function_call: Refused = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None
    annotations: RefusedList = None  # openai-python's message.model_dump() has it
    parsed: dict[str, Any] | None = NO_EFFECT  # content again


def _check_content(value: Any) -> str | None:
    """A message's text; several parts are joined by line breaks, as vLLM and llama.cpp do."""
    if value is None or isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise PydanticCustomError("content_type", "must be a string or a list of text parts")
    texts = []
    for part in value:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind != "text":
            name = kind if isinstance(kind, str) else "without a type"
            message = "content parts of type {name} are not supported"
            raise PydanticCustomError("unsupported", message, {"name": name[:50]})
        unknown = part.keys() - {"type", "text"}
        if unknown:
            message = "{name} in a text part is not supported"
            raise PydanticCustomError("unsupported", message, {"name": min(unknown)[:50]})
        if not isinstance(part.get("text"), str):
            raise PydanticCustomError("content_type", "a text part needs its text, a string")
        texts.append(part["text"])
    return "\n".join(texts)


class ChatRequest(Common):
    """POST /v1/chat/completions"""

    messages: Annotated[list[Message], FailFast(), Field(min_length=1)]
    max_completion_tokens: int | None = Field(None, ge=1, le=MOST)
    logprobs: bool | None = None
    top_logprobs: int | None = Field(None, ge=0)
    tools: Annotated[list[Tool] | None, FailFast()] = None
    tool_choice: ToolChoice = None
    parallel_tool_calls: bool | None = None  # false: at most one call
    reasoning_effort: Effort = None
    chat_template_kwargs: dict[str, Any] | None = None  # variables of the model's chat template
    response_format: ResponseFormat | None = None
    # Refused until they work.
    audio: Refused = None
    function_call: Annotated[Any, Refuse("none", "auto")] = None
    functions: RefusedList = None
    modalities: Annotated[Any, Refuse(["text"])] = None
    moderation: Refused = None
    prediction: Refused = None
    verbosity: Annotated[Any, Refuse("medium")] = None
    web_search_options: Refused = None


def _check_prompt(value: Any) -> Any:
    # By hand: trying a union of four types on a prompt of 100,000 ids would hold up every stream for long.
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value:
        kinds = set(map(type, value))
        if kinds == {str} or kinds == {int}:
            return value
        if kinds == {list} and all(set(map(type, ids)) == {int} for ids in value):
            return value
    raise PydanticCustomError(
        "prompt_type", "must be a string, a list of strings, a list of token ids, or a list of such lists; not empty"
    )


class CompletionRequest(Common):
    """POST /v1/completions"""

    prompt: Annotated[
        Any,
        AfterValidator(_check_prompt),
        WithJsonSchema(
            {
                "anyOf": [
                    {"type": "string"},
                    {"type": "array", "items": {"type": "string"}},
                    {"type": "array", "items": {"type": "integer"}},
                    {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}},
                ]
            }
        ),
    ]
    logprobs: int | None = Field(None, ge=0)
    best_of: int | None = Field(
        None,
        ge=1,
        le=MOST,
        description="So many are made, and the n with the highest log probability a token returned.",
    )
    echo: bool | None = Field(None, description="The text begins with the prompt's. Not with logprobs.")
    suffix: Annotated[Any, Refuse("")] = None


class TokenizeRequest(Schema):
    """POST /tokenize"""

    model: str | None = None
    prompt: str | None = None
    messages: Annotated[list[Message], FailFast(), Field(min_length=1)] = Field(default_factory=list)
    add_special_tokens: bool = True  # of a prompt; a chat template writes its own


class DetokenizeRequest(Schema):
    """POST /detokenize"""

    model: str | None = None
    tokens: Annotated[list[int], FailFast()]
