"""What a server says: a whole answer, and the parts of a streamed one."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Chunk = dict[str, Any]  # one event of a stream, parsed


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens, by the server's count."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer; `text` and `finish_reason` are those of the first choice, `raw` is the whole body. `truncated` is
    false: it is here so that whole and streamed answers can be told alike."""

    text: str
    finish_reason: str | None
    usage: Usage | None
    raw: Mapping[str, Any] = field(repr=False)
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class Restarted:
    """Stands among the chunks of a stream where its answer begins anew: those before it are void."""

    reason: str


def answer_of(body: object) -> Answer:
    """Of a whole body; what in it is not what it should be counts as absent."""
    fields = body if isinstance(body, dict) else {}
    choice = first_choice(fields)
    return Answer(text_of(choice), reason_of(choice), usage_of(fields), fields)


def choices_in(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The choices of an answer or a chunk, as far as they are any."""
    choices = body.get("choices")
    return [choice for choice in choices if isinstance(choice, dict)] if isinstance(choices, list) else []


def first_choice(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """That of index 0 in an answer or a chunk; an empty one if it has none."""
    return next((choice for choice in choices_in(body) if not choice.get("index")), {})


def text_of(choice: Mapping[str, Any]) -> str:
    """The text of a choice of either endpoint, streamed or not."""
    said = choice.get("delta") or choice.get("message")
    text = said.get("content") if isinstance(said, dict) else choice.get("text")
    return text if isinstance(text, str) else ""


def reason_of(choice: Mapping[str, Any]) -> str | None:
    """Why a choice has ended; None: it has not."""
    reason = choice.get("finish_reason")
    return reason if isinstance(reason, str) and reason else None


def usage_of(body: Mapping[str, Any]) -> Usage | None:
    usage = body.get("usage")
    if not isinstance(usage, dict):
        return None
    details = usage.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else 0
    return Usage(_count(usage.get("prompt_tokens")), _count(usage.get("completion_tokens")), _count(cached))


def _count(value: object) -> int:
    return value if type(value) is int else 0


def as_chunk(body: object) -> Chunk:
    """A whole answer as the one chunk of a stream."""
    fields = body if isinstance(body, dict) else {}
    choices = [
        {("delta" if key == "message" else key): value for key, value in choice.items()}
        for choice in choices_in(fields)
    ]
    kind = str(fields.get("object", "chat.completion"))
    return {**fields, "object": f"{kind}.chunk" if kind == "chat.completion" else kind, "choices": choices}
