"""Bodies of the Responses API. Every field OpenAI documents is here: honoured, accepted without effect where nothing it
could say applies to this server, or refused by name."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Discriminator, FailFast, Field, Tag
from pydantic_core import PydanticCustomError

from headway.delivery.responses_item_schema import InputItem
from headway.delivery.schema import NO_EFFECT, Refused, RefusedFlag, RefusedList, Schema
from headway.delivery.schemas import LONGEST_TIMEOUT_S, MOST, Label, Metadata, OnTimeout, ServiceTier, Stop, User
from headway.delivery.tool_schemas import Effort, ToolName


class _FirstFault(FailFast):
    """FailFast as a part of a union, which wants it hashable."""

    __hash__ = object.__hash__


def _kind_of_input(value: Any) -> str:
    return "[text]" if isinstance(value, str) or value is None else "[items]"


Input = Annotated[
    Annotated[str | None, Tag("[text]")] | Annotated[Annotated[list[InputItem], _FirstFault()], Tag("[items]")],
    Discriminator(_kind_of_input),
]


def _one_of(kind: str, *known: str) -> Any:
    """A validator for an object or a word that is passed on to the chat's own checks."""

    def check(value: Any) -> Any:
        given = value.get("type") if isinstance(value, dict) else value
        if given in known or (value is None):
            return value
        name = given[:50] if isinstance(given, str) else "of this type"
        raise PydanticCustomError("unsupported", "a {kind} {name} is not supported", {"kind": kind, "name": name})

    return AfterValidator(check)


class FunctionTool(Schema):
    """A function that the model may call."""

    type: Literal["function"]
    name: ToolName
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None
    output_schema: Refused = None
    allowed_callers: Annotated[Any, _one_of("caller", "direct")] = None
    defer_loading: RefusedFlag = None
    async_: RefusedFlag = Field(None, alias="async")


class TextFormat(Schema):
    """What the answer must be."""

    type: Literal["text", "json_object", "json_schema"]
    name: str | None = Field(None, max_length=64)
    description: str | None = None
    schema_: Any = Field(None, alias="schema")
    strict: bool | None = None


class TextConfig(Schema):
    format: TextFormat | None = None
    verbosity: Annotated[Any, _one_of("verbosity", "medium")] = None


class ReasoningConfig(Schema):
    effort: Effort = None
    summary: Annotated[Any, _one_of("summary", "auto")] = None  # what a model thought is given in full
    generate_summary: Annotated[Any, _one_of("summary", "auto")] = None
    context: Annotated[Any, _one_of("context", "auto")] = None
    mode: Annotated[Any, _one_of("mode", "standard")] = None


class PromptCacheOptions(Schema):
    """The cache of prompts needs none of them."""

    mode: Literal["implicit", "explicit"] | None = None
    ttl: Literal["30m", "12h"] | None = None
    prewarm: RefusedFlag = None
    comparison_response_id: Refused = None


class BackgroundOptions(Schema):
    completion_window: Annotated[Any, _one_of("completion window", "soonest")] = None
    continuation_id: Refused = None


class ObfuscationOptions(Schema):
    include_obfuscation: RefusedFlag = None


Includable = Literal[
    "message.output_text.logprobs",
    "reasoning.encrypted_content",  # reasoning is given in the clear
    # Of items that this server never makes.
    "file_search_call.results",
    "web_search_call.results",
    "web_search_call.action.sources",
    "message.input_image.image_url",
    "computer_call_output.output.image_url",
    "code_interpreter_call.outputs",
]


class InputFields(Schema):
    """What makes a prompt."""

    model: str | None = None
    input: Input = None
    instructions: str | None = None
    previous_response_id: str | None = Field(None, max_length=128)
    conversation: Refused = None


class PromptFields(InputFields):
    """What makes a prompt, with what the model is told of its answer's form."""

    text: TextConfig | None = None
    reasoning: ReasoningConfig | None = None
    tools: Annotated[list[FunctionTool] | None, FailFast()] = None
    tool_choice: Annotated[Any, _one_of("tool choice", "none", "auto", "required", "function", "allowed_tools")] = None
    parallel_tool_calls: bool | None = None
    truncation: Literal["auto", "disabled"] | None = Field(
        None,
        description="auto: the oldest turns of a conversation that does not fit the context are left out. "
        "disabled, the default: it is refused.",
    )


class ResponseRequest(PromptFields):
    """POST /v1/responses"""

    stream: bool | None = None
    stream_options: ObfuscationOptions | None = None
    background: bool | None = None
    background_options: BackgroundOptions | None = None
    store: bool | None = None
    include: Annotated[list[Includable] | None, FailFast()] = None
    max_output_tokens: int | None = Field(None, ge=1, le=MOST)
    max_tool_calls: int | None = Field(None, ge=1, le=MOST)  # of built-in tools, of which there are none
    temperature: float | None = Field(None, ge=0, le=2)
    top_p: float | None = Field(None, gt=0, le=1)
    top_logprobs: int | None = Field(None, ge=0)
    presence_penalty: float | None = Field(None, ge=-2, le=2)
    frequency_penalty: float | None = Field(None, ge=-2, le=2)
    metadata: Metadata | None = None
    service_tier: ServiceTier = None
    user: User = None
    # Accepted without effect.
    safety_identifier: Label | None = NO_EFFECT
    prompt_cache_key: Label | None = NO_EFFECT
    prompt_cache_options: PromptCacheOptions | None = NO_EFFECT
    prompt_cache_retention: Label | None = NO_EFFECT
    # Headway's own, as in a chat.
    top_k: int | None = Field(None, ge=-1, le=MOST)
    min_p: float | None = Field(None, ge=0, le=1)
    seed: int | None = Field(None, ge=-(2**63), lt=2**64)
    stop: Stop = None
    timeout: float | None = Field(None, gt=0, le=LONGEST_TIMEOUT_S)
    on_timeout: OnTimeout = None
    # Refused.
    access_programs: Refused = None
    context_management: RefusedList = None
    image: Refused = None
    moderation: Refused = None
    prompt: Refused = None


STREAM_ID = r"[A-Za-z0-9_.-]{1,256}"


class ResponseCreate(ResponseRequest):
    """A message `response.create` on a WebSocket."""

    type: Literal["response.create"]
    stream: Literal[True] | None = None
    stream_id: Annotated[str | None, Field(pattern=f"^{STREAM_ID}$")] = None  # the lane
    generate: bool | None = None  # false: no output, only an id to go on from


class InputTokensRequest(PromptFields):
    """POST /v1/responses/input_tokens"""

    personality: Refused = None


class CompactRequest(InputFields):
    """POST /v1/responses/compact"""

    model: str | None  # required, as OpenAI has it here
    service_tier: ServiceTier = None
    # Accepted without effect.
    prompt_cache_key: Label | None = NO_EFFECT
    prompt_cache_options: PromptCacheOptions | None = NO_EFFECT
    prompt_cache_retention: Label | None = NO_EFFECT
    # Refused.
    image: Refused = None
