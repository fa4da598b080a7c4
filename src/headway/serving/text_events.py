"""What a reader of one generation gets: one Started, any number of Deltas, one Done; a failure is raised instead."""

from array import array
from typing import Literal

import msgspec

from headway.core.events import TokenLogprobs


class Usage(msgspec.Struct, frozen=True):
    """Tokens of one generation. `completion_tokens` counts every emitted token, an end token included, up to the
    token that completed a stop string."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    reasoning_tokens: int = 0  # of `completion_tokens`: those of the reasoning, the marks around it included


class Started(msgspec.Struct, frozen=True):
    """The first step of the request has been planned. Tokens of a prompt that several share count for the first."""

    prompt_tokens: int
    cached_tokens: int
    prompt: "array[int]"


class Delta(msgspec.Struct, frozen=True):
    """New text and the tokens that brought it. The text is never empty, unless logprobs were asked for and the last
    tokens of the generation have none."""

    text: str
    token_ids: list[int]
    logprobs: list[TokenLogprobs] | None = None


class Content(msgspec.Struct, frozen=True):
    """Text for the reader."""

    text: str


class Reasoning(msgspec.Struct, frozen=True):
    """Text of the model's reasoning before its answer."""

    text: str


class CallStart(msgspec.Struct, frozen=True):
    """A tool call begins; its arguments follow."""

    index: int  # 0 for the first call of an answer
    id: str
    name: str


class Arguments(msgspec.Struct, frozen=True):
    """The next piece of the JSON text of a call's arguments."""

    index: int
    text: str


Part = Content | Reasoning | CallStart | Arguments


class AnswerDelta(Delta, frozen=True, kw_only=True):
    """A Delta of an answer that may have reasoning and tool calls: `parts` says what the text means, and `text` is
    that of the content parts alone. No parts: only logprobs are left to show."""

    parts: list[Part]


class Done(msgspec.Struct, frozen=True):
    """The generation ended well."""

    finish_reason: Literal["stop", "length", "tool_calls"]
    usage: Usage


TextEvent = Started | Delta | Done
