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


class TokenLogprobs(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Log probability of one emitted token and the most likely tokens at its position, best first."""

    logprob: float
    top: list[tuple[int, float]]


class Emission(msgspec.Struct, frozen=True, array_like=True, kw_only=True, gc=False):
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


class Share(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """What a tenant that is not alone would meet in a lane."""

    lane: int
    tenant: str
    modest: bool  # it has less than its share: the promise is stretched to its letter for it
    seats: int  # of the outlook's, those it may take
    wait_s: float  # until the tokens before its own are computed
    slow: float = 1.0  # times longer that its prompts take while those of modest tenants, which go first, keep coming


class Outlook(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """What a request that comes now would meet, in predicted seconds. Lists are by lane."""

    streams: int  # interactive ones, running and waiting
    seats: int  # streams that could be added with every gap still kept, and room for their K and V
    last_seats: int  # those and the last few, with the margin used up, for who was promised one
    waits_s: list[float]  # until the tokens before its own are computed
    long_waits_s: list[float]  # the same for a very long prompt, which waits for shorter ones and longer ones alike
    token_s: float  # for each token of its prompt, beside the streams there are
    key_s: float  # for each thousand keys that they attend to beyond those at a typical position
    caution: float  # times the prediction in which nearly all first tokens of late have come
    slow: float  # times longer that a token takes while very long prompts have their share
    unloaded_token_s: float  # both on an idle server
    unloaded_key_s: float
    unloaded_step_s: float  # of a step with one stream alone
    step_s: float  # of one step
    end_s: float | None  # between two ends of streams, each of which frees a seat; None: none has ended yet
    shares: list[Share] = []  # of tenants that have or want something now


class LaneLoad(msgspec.Struct, frozen=True, array_like=True):
    """One lane of the engine."""

    waiting: int
    running: int
    tokens: int  # not yet computed, of waiting and running sequences


class Tuning(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """Where self-tuning stands."""

    batch_limit: int  # interactive sequences that may run at once
    margin: float  # share of promise.itl_ms that a step plans for
    chunk_tokens: int  # of a prompt, in a step beside the streams there are
    ups: int = 0  # decisions since start
    downs: int = 0


class Load(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """The engine's load after a step, from which `serving/gate` refuses early."""

    time: float  # Clock seconds of the engine's heartbeat
    ready: bool  # the model has produced a token
    waiting: int
    waiting_tokens: int  # prompt tokens not yet computed, of waiting and running sequences
    running: int
    free_blocks: int  # free or cached and evictable
    total_blocks: int
    predicted_wait_s: float  # until a request queued now would be planned first
    steps: int = 0
    computed_tokens: int = 0  # prefill and decode tokens computed since start
    cached_tokens: int = 0  # prompt tokens served from the prefix cache since start
    preemptions: int = 0
    recomputed_tokens: int = 0
    lanes: list[LaneLoad] = []
    outlook: Outlook | None = None
    tuning: Tuning | None = None
    prediction_error: float | None = None  # median relative error of recent predicted step times


class StepMessage(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """One engine step as one worker sees it; also sent, with no emissions, as a heartbeat while idle."""

    epoch: int
    emissions: list[Emission]
    load: Load | None  # None: the last one holds, but for a few tokens more of streams that go on
