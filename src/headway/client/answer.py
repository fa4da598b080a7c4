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


def answer_of(body: Mapping[str, Any]) -> Answer:
    choice = first_choice(body)
    return Answer(text_of(choice), choice.get("finish_reason"), usage_of(body), body)


def first_choice(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """That of index 0 in an answer or a chunk; an empty one if it has none."""
    for choice in body.get("choices") or ():
        if isinstance(choice, dict) and not choice.get("index"):
            return choice
    return {}


def text_of(choice: Mapping[str, Any]) -> str:
    """The text of a choice of either endpoint, streamed or not."""
    said = choice.get("delta") or choice.get("message")
    text = choice.get("text") if said is None else said.get("content")
    return text if isinstance(text, str) else ""


def usage_of(body: Mapping[str, Any]) -> Usage | None:
    usage = body.get("usage")
    if not isinstance(usage, dict):
        return None
    details = usage.get("prompt_tokens_details") or {}
    return Usage(
        usage.get("prompt_tokens") or 0, usage.get("completion_tokens") or 0, details.get("cached_tokens") or 0
    )


def as_chunk(body: Mapping[str, Any]) -> Chunk:
    """A whole answer as the one chunk of a stream."""
    choices = [
        {("delta" if key == "message" else key): value for key, value in choice.items()}
        for choice in body.get("choices") or ()
    ]
    kind = str(body.get("object", "chat.completion"))
    return {**body, "object": f"{kind}.chunk" if kind == "chat.completion" else kind, "choices": choices}
