"""Tools and their calls as OpenAI writes them."""

from typing import Annotated, Any, Literal

from pydantic import Discriminator, FailFast, Field, Tag

from headway.delivery.schema import NO_EFFECT, Schema

ToolName = Annotated[str, Field(pattern=r"^[a-zA-Z0-9_-]{1,64}$")]


class CalledFunction(Schema):
    name: ToolName
    arguments: str  # JSON text
    parsed_arguments: dict[str, Any] | None = NO_EFFECT  # what the openai clients add to a call they have parsed


class ToolCall(Schema):
    """A call that the model has made, sent back."""

    id: str = Field(min_length=1, max_length=256)
    type: Literal["function"] = "function"
    function: CalledFunction
    index: int | None = NO_EFFECT  # a call of a stream has it


class Function(Schema):
    name: ToolName
    description: str | None = None
    parameters: dict[str, Any] | None = None  # a JSON schema; none: no parameters
    strict: bool | None = None


class Tool(Schema):
    """A function the model may call."""

    type: Literal["function"]
    function: Function


class _Named(Schema):
    name: ToolName


class NamedTool(Schema):
    """This tool must be called."""

    type: Literal["function"]
    function: _Named


class _Allowed(Schema):
    mode: Literal["auto", "required"]
    tools: Annotated[list[NamedTool], FailFast(), Field(min_length=1)]


class AllowedTools(Schema):
    """Only these tools may be called."""

    type: Literal["allowed_tools"]
    allowed_tools: _Allowed


def _kind_of_choice(value: Any) -> str:
    # As it is read, and as it is written.
    kind = value.get("type") if isinstance(value, dict) else getattr(value, "type", None)
    return f"[{kind}]" if kind in ("function", "allowed_tools") else "[word]"


ToolChoice = Annotated[
    Annotated[Literal["none", "auto", "required"] | None, Tag("[word]")]
    | Annotated[NamedTool, Tag("[function]")]
    | Annotated[AllowedTools, Tag("[allowed_tools]")],
    Discriminator(_kind_of_choice),  # tags in brackets are left out of the path that an error names
    Field(description="auto, the default: the model decides. required: it calls a tool. none: it sees none."),
]
Effort = Annotated[
    Literal["none", "minimal", "low", "medium", "high", "xhigh"] | None,
    Field(
        description="Honoured where the model's chat template has reasoning_effort or enable_thinking (none: false, "
        "the others: true); else refused, except none for a model that does not reason."
    ),
]
