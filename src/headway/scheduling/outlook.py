"""What a newcomer would meet: whether the promise could be kept for it, and else when."""

from dataclasses import dataclass
from math import ceil

from headway.core.config import PromiseSettings
from headway.core.events import Outlook, Share
from headway.core.lane import Lane
from headway.scheduling.cost_model import CostModel, StepLoad, attended
from headway.scheduling.pace import LEAST_CHUNK

TYPICAL_CHUNK_START = 256  # position in a prompt at which a token's cost is taken for all
UNKNOWN_END_S = 1.0  # until a stream ends, before any has
UNLOADED = 2.0  # times its own unloaded prefill that a prompt may take beyond ttft_ms
GRACE = 2  # seats more than there are, for one that was told to come now
# Steps beside those for the tokens: half of the one under way when it comes, and what its last piece leaves of the one
# that carries its first token out; twice the mean of both would be 2.
AROUND = 1.5


@dataclass(frozen=True, slots=True)
class Standing:
    """What is there before a newcomer. Lists are by lane."""

    streams: int  # interactive sequences, running and waiting: all of them will decode
    capacity: int  # of them, that may run at once
    context: int  # keys that the next token of all of them attends to
    short: list[int]  # tokens to compute before the newcomer's
    long: list[int]  # the same, of very long prompts
    long_keys: list[int]  # and the keys that these attend to
    ends_per_s: float | None  # how often a stream ends; None: not known yet
    kv_seats: int = 1 << 30  # sequences for whose K and V there will be room
    prompt: float = 0.0  # tokens of nearly any prompt of late
    flex_s: float = 0.0  # seconds that flex work makes of each step
    caution: float = 1.0  # times as long as predicted that nearly any first token of late has taken


def look(
    costs: CostModel, promise: PromiseSettings, budget: int, margin: float, long_share: float, standing: Standing
) -> Outlook:
    """Computed from the streams there will be once the backlog is done, so that what is let in stays within the gap."""
    streams = standing.streams
    each = standing.context / streams if streams else float(TYPICAL_CHUNK_START)
    decodes = StepLoad(streams, int(each * streams), streams)
    start = TYPICAL_CHUNK_START
    gap = promise.itl_s
    seats: float = min(standing.capacity - streams, standing.kv_seats)
    last: float = seats
    if gap is None:
        chunk = budget
    else:
        step = margin * gap
        fits = costs.tokens_within(step, decodes, start) if streams else budget
        chunk = max(1, min(budget, max(LEAST_CHUNK, fits)))
        # one more stream costs its own token and keys; a step must still have room for a piece of a prompt
        piece = _piece(promise, step, standing.prompt)
        one = StepLoad(streams + 1, int(each * (streams + 1)), streams + 1)
        cost = max(1e-9, costs.predict(one) - costs.predict(decodes))
        last = min(seats, _fitting(costs, decodes, start, LEAST_CHUNK, gap) // cost)
        seats = min(seats, _fitting(costs, decodes, start, piece, step) // cost)
    whole = StepLoad(streams + chunk, decodes.context + attended(start, chunk), streams)
    per_token = costs.predict(whole) / chunk
    alone = costs.predict(StepLoad(budget, attended(start, budget), 1)) / budget - costs.coefficients[2] * budget / 2e3
    key = costs.coefficients[2]
    # decodes stretch each second that is left for prompts
    beside = key * costs.predict(whole) / max(1e-9, costs.predict(whole) - costs.predict(decodes)) if streams else key
    slow = 1.0 / (1.0 - long_share) if any(standing.long) else 1.0
    waits, long_waits, short, long = [], [], 0.0, 0.0
    for lane in Lane:
        tokens, keys = standing.long[lane], standing.long_keys[lane]
        short += standing.short[lane] * per_token
        long += tokens * per_token + beside * _keys_beyond(tokens, keys)
        waits.append(min(short * slow, short + long))
        long_waits.append(short + long)
    return Outlook(
        streams=streams,
        seats=max(0, int(seats)),
        last_seats=max(0, int(last)),
        waits_s=waits,
        long_waits_s=long_waits,
        token_s=per_token,
        key_s=beside,
        caution=standing.caution,
        slow=slow,
        unloaded_token_s=alone,
        unloaded_key_s=key,
        unloaded_step_s=costs.predict(StepLoad(1, 1, 1)),
        step_s=max(costs.predict(whole if streams else StepLoad(1, 1, 1)), standing.flex_s),
        end_s=1.0 / standing.ends_per_s if standing.ends_per_s else None,
    )


def _keys_beyond(tokens: int, keys: int) -> float:
    """Thousands of keys that so many tokens attend to, beyond those of tokens at a typical position."""
    return (keys - tokens * TYPICAL_CHUNK_START) * 1e-3


def _prompt_s(tokens: int, token_s: float, key_s: float) -> float:
    """Seconds for a whole prompt: late tokens attend to more keys than early ones."""
    return tokens * token_s + key_s * _keys_beyond(tokens, attended(0, tokens))


def _fitting(costs: CostModel, decodes: StepLoad, start: int, piece: int, step_s: float) -> float:
    """Seconds that a step of `step_s` has left beside `decodes` and a piece of a prompt."""
    beside = StepLoad(decodes.tokens + piece, decodes.context + attended(start, piece), decodes.sequences)
    return step_s - costs.predict(beside)


def _piece(promise: PromiseSettings, step_s: float, prompt: float) -> int:
    """Tokens of a prompt that each step must have room for, so that one of `prompt` tokens makes it within ttft_ms."""
    if not promise.ttft_ms:
        return LEAST_CHUNK
    steps = promise.ttft_ms / 1e3 / step_s - AROUND - 1
    return max(LEAST_CHUNK, ceil(prompt / max(1.0, steps)))


@dataclass(frozen=True, slots=True)
class Newcomer:
    """What is known of a request before it is let in, and what is on the way that the outlook does not show yet."""

    tokens: int  # of its prompt
    waited_s: float  # since its HTTP arrival
    lane: Lane = Lane.DEFAULT
    tenant: str = ""
    long: bool = False  # its prompt is a very long one
    left_s: float | None = None  # until its deadline
    unseen: int = 0  # requests, of its lane and those before
    unseen_tokens: int = 0
    booked: bool = False  # it was refused before and told to come now


def first_token_s(outlook: Outlook, newcomer: Newcomer) -> float:
    """Predicted seconds from now to its first token, if it is let in."""
    share = find_share(outlook, newcomer.lane, newcomer.tenant)
    before = _before_s(outlook, newcomer, share)
    slow = 1.0 if newcomer.long else outlook.slow
    if share is not None:
        slow *= share.slow
        before *= share.slow
    first = before + newcomer.unseen_tokens * slow * outlook.token_s
    first += slow * _prompt_s(newcomer.tokens, outlook.token_s, outlook.key_s)
    return first + AROUND * outlook.step_s


def _before_s(outlook: Outlook, newcomer: Newcomer, share: Share | None) -> float:
    """Seconds until the tokens before its own are computed."""
    before = (outlook.long_waits_s if newcomer.long else outlook.waits_s)[newcomer.lane]
    return before if share is None or newcomer.long else min(before, share.wait_s)


def wait_needed(outlook: Outlook, promise: PromiseSettings, newcomer: Newcomer) -> float:
    """Seconds after which promise and deadline could be kept for it; 0: now, also where nothing is promised.

    `ttft_ms` binds: a first token later than that, plus twice the prompt's own unloaded time, breaks the promise, and
    so does a stream too many for `itl_ms`. Flex is promised nothing; deadlines hold for all.
    """
    if not outlook.streams and not newcomer.unseen and newcomer.lane is not Lane.FLEX:
        return 0.0  # it would be no sooner at any other time
    share = find_share(outlook, newcomer.lane, newcomer.tenant)
    seats = share.seats if share else outlook.seats
    if newcomer.booked:
        seats = max(seats, min(seats + GRACE, outlook.last_seats))
    # What makes others late is above all that modest tenants go before them.
    caution = 1.0 if share is not None and share.modest else outlook.caution
    first = caution * first_token_s(outlook, newcomer)
    seat = max(0, newcomer.unseen + 1 - seats) * (outlook.end_s or 0.0)
    wait = 0.0
    if promise.ttft_ms and newcomer.lane is not Lane.FLEX:
        if newcomer.unseen + 1 > seats:
            wait = max(seat, outlook.step_s)
        # Of the two parts of the allowance the greater alone, so that short prompts get theirs within ttft_ms itself.
        unloaded = _prompt_s(newcomer.tokens, outlook.unloaded_token_s, outlook.unloaded_key_s)
        parts = (promise.ttft_ms / 1e3, UNLOADED * unloaded)
        allowed = sum(parts) if newcomer.booked or (share is not None and share.modest) else max(parts)
        wait = max(wait, first - (allowed - newcomer.waited_s))
    if promise.queue_s and newcomer.lane is not Lane.FLEX:
        wait = max(wait, _before_s(outlook, newcomer, share) - promise.queue_s)
    if newcomer.left_s is not None:
        wait = max(wait, first + (0.0 if promise.ttft_ms else seat) - newcomer.left_s)
    return max(0.0, wait)


def queue_wait_s(outlook: Outlook, lane: Lane, ends: int) -> float:
    """Seconds until a request queued now is planned first: the tokens before it must be computed, and so many streams
    must end."""
    return max(outlook.waits_s[lane], ends * (UNKNOWN_END_S if outlook.end_s is None else outlook.end_s))


def find_share(outlook: Outlook, lane: Lane, tenant: str) -> Share | None:
    """The tenant's part in a lane, if it is one of those told apart."""
    for share in outlook.shares:
        if share.tenant == tenant and share.lane == lane:
            return share
    return None


def unloaded_s(outlook: Outlook, prompt_tokens: int, least_output: int) -> float:
    """Seconds that a request takes on an idle server at least: its prompt, then `least_output` tokens."""
    prompt = _prompt_s(prompt_tokens, outlook.unloaded_token_s, outlook.unloaded_key_s)
    return prompt + max(1, least_output) * outlook.unloaded_step_s
