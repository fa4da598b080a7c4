"""Items that go into a response."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Discriminator, FailFast, Field, Tag, WithJsonSchema
from pydantic_core import PydanticCustomError

from headway.delivery.schema import Refused, RefusedFlag, Schema
from headway.delivery.tool_schemas import ToolName

LONGEST_ID = 256
Id = Annotated[str | None, Field(max_length=LONGEST_ID)]
CallId = Annotated[str, Field(min_length=1, max_length=LONGEST_ID)]
ItemStatus = Literal["in_progress", "completed", "incomplete"] | None
TEXT_PARTS = {"input_text": "text", "output_text": "text", "text": "text", "refusal": "refusal"}
PART_FIELDS = {"type", "text", "refusal", "annotations", "logprobs"}  # the last two come back from our own output


def _check_content(value: Any) -> str:
    """A message's text; several parts are joined by line breaks, as in a chat."""
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise PydanticCustomError("content_type", "must be a string or a list of text parts")
    texts = []
    for part in value:
        kind = part.get("type") if isinstance(part, dict) else None
        if not isinstance(kind, str) or kind not in TEXT_PARTS:
            name = kind if isinstance(kind, str) else "without a type"
            message = "content parts of type {name} are not supported"
            raise PydanticCustomError("unsupported", message, {"name": name[:50]})
        if unknown := part.keys() - PART_FIELDS:
            message = "{name} in a part is not supported"
            raise PydanticCustomError("unsupported", message, {"name": min(unknown)[:50]})
        text = part.get(TEXT_PARTS[kind])
        if not isinstance(text, str):
            raise PydanticCustomError("content_type", "a part needs its text, a string")
        texts.append(text)
    return "\n".join(texts)


_PARTS = {"type": "array", "items": {"type": "object", "properties": {"type": {"enum": [*TEXT_PARTS]}}}}
Content = Annotated[Any, AfterValidator(_check_content), WithJsonSchema({"anyOf": [{"type": "string"}, _PARTS]})]


class MessageItem(Schema):
    """What somebody said."""

    type: Literal["message"] = "message"
    role: Literal["user", "assistant", "system", "developer"]
    content: Content
    id: Id = None
    status: ItemStatus = None
    phase: Literal["commentary", "final_answer"] | None = None


class FunctionCallItem(Schema):
    """A call that the model has made."""

    type: Literal["function_call"]
    call_id: CallId
    name: ToolName
    arguments: str
    id: Id = None
    status: ItemStatus = None
    namespace: Refused = None
    caller: Refused = None
    async_: RefusedFlag = Field(None, alias="async")


class FunctionCallOutputItem(Schema):
    """The result of one."""

    type: Literal["function_call_output"]
    call_id: CallId
    output: Content
    id: Id = None
    status: ItemStatus = None
    name: Id = None
    namespace: Refused = None
    caller: Refused = None
    created_by: Refused = None


class ReasoningPart(Schema):
    type: Literal["reasoning_text", "summary_text"]
    text: str


class ReasoningItem(Schema):
    """What the model thought before an answer; shown to models whose chat template knows it."""

    type: Literal["reasoning"]
    id: Id = None
    summary: Annotated[list[ReasoningPart], FailFast()] = Field(default_factory=list)
    content: Annotated[list[ReasoningPart] | None, FailFast()] = None
    encrypted_content: Refused = None
    status: ItemStatus = None


class CompactionItem(Schema):
    """What POST /v1/responses/compact has made of a conversation."""

    type: Literal["compaction"]
    encrypted_content: str
    id: Id = None
    created_by: Refused = None


ITEMS = ("message", "function_call", "function_call_output", "reasoning", "compaction")


def _kind_of_item(value: Any) -> str | None:
    """The tag, in brackets so that it is left out of the path that an error names."""
    kind = value.get("type", "message") if isinstance(value, dict) else None
    return f"[{kind}]" if kind in ITEMS else None


_ONLY = f"only items of the types {', '.join(ITEMS)} are supported"
InputItem = Annotated[
    Annotated[MessageItem, Tag("[message]")]
    | Annotated[FunctionCallItem, Tag("[function_call]")]
    | Annotated[FunctionCallOutputItem, Tag("[function_call_output]")]
    | Annotated[ReasoningItem, Tag("[reasoning]")]
    | Annotated[CompactionItem, Tag("[compaction]")],
    Discriminator(
        _kind_of_item,
        custom_error_type="unsupported",
        custom_error_message=_ONLY,
    ),
]
