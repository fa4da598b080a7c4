"""What the engine tells the API: one message per step and worker."""

from enum import StrEnum

import msgspec


class Finish(StrEnum):
    """Why a sequence ended. STOP and LENGTH are successes; the rest are failures or nobody's answer."""

    STOP = "stop"  # an end token or a stop token id
    LENGTH = "length"  # max_tokens or the context is used up
    CANCELLED = "cancelled"
    REFUSED = "refused"  # the queue was full at the engine's exact check; `detail` says why
    EXPIRED = "expired"  # the deadline passed
    FAILED = "failed"  # this sequence alone failed; `detail` says why


class TokenLogprobs(msgspec.Struct, frozen=True, array_like=True):
    """Log probability of one emitted token and the most likely tokens at its position, best first."""

    logprob: float
    top: list[tuple[int, float]]


class Emission(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """What one request got from one step. The emission with `finish` is the request's last and only terminal event.

    A stop token or end token is in `tokens` (it was computed and counts in usage); the frontend gives it no text.
    """

    id: int
    tokens: list[int] = []
    logprobs: list[TokenLogprobs] | None = None
    started: bool = False  # its first step has been planned; sent once, before any token
    cached_tokens: int = 0  # with `started`: prompt tokens found in the prefix cache
    finish: Finish | None = None
    detail: str = ""
    retry_after_s: float = 0.0  # with REFUSED


class Outlook(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """What a request that comes now would meet, in predicted seconds."""

    streams: int  # running and waiting
    seats: int  # streams that could be added with every gap still kept
    wait_s: float  # until the tokens before its own are computed
    token_s: float  # for each token of its prompt, beside the streams there are
    unloaded_token_s: float  # the same on an idle server
    step_s: float  # of one step
    end_s: float  # between two ends of streams, each of which frees a seat


class Load(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """The engine's load after a step, from which `serving/gate` refuses early."""

    time: float  # Clock seconds of the engine's heartbeat
    ready: bool  # the model has produced a token
    waiting: int
    waiting_tokens: int  # prompt tokens not yet computed, of waiting and running sequences
    running: int
    free_blocks: int  # free or cached and evictable
    total_blocks: int
    predicted_wait_s: float  # until a request queued now would be planned first, a coarse estimate
    steps: int = 0
    computed_tokens: int = 0  # prefill and decode tokens computed since start
    cached_tokens: int = 0  # prompt tokens served from the prefix cache since start
    preemptions: int = 0
    recomputed_tokens: int = 0
    outlook: Outlook | None = None
    prediction_error: float | None = None  # median relative error of recent predicted step times


class StepMessage(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """One engine step as one worker sees it; also sent, with no emissions, as a heartbeat while idle."""

    epoch: int
    emissions: list[Emission]
    load: Load
