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


class Done(msgspec.Struct, frozen=True):
    """The generation ended well."""

    finish_reason: Literal["stop", "length"]
    usage: Usage


TextEvent = Started | Delta | Done
