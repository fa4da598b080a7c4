"""What a newcomer would meet: whether the promise could be kept for it, and else when."""

from dataclasses import dataclass

from headway.core.config import PromiseSettings
from headway.core.events import Outlook
from headway.scheduling.cost_model import CostModel, StepLoad, attended
from headway.scheduling.pace import LEAST_CHUNK, MARGIN

TYPICAL_CHUNK_START = 256  # position in a prompt at which a token's cost is taken for all
UNLOADED = 2.0  # times its own unloaded prefill that a prompt may take beyond ttft_ms
SAFETY = 1.05  # predictions of the first token are right on average; the promise is for nearly all
UNKNOWN_END_S = 1.0  # until a stream ends, before any has


@dataclass(frozen=True, slots=True)
class Standing:
    """What is there before a newcomer."""

    streams: int  # running and waiting sequences: all of them will decode
    capacity: int  # sequences that may run
    context: int  # keys that the next token of all running ones attends to
    backlog: int  # tokens to compute before the newcomer's
    ends_per_s: float | None  # how often a stream ends; None: not known yet


def look(costs: CostModel, promise: PromiseSettings, budget: int, standing: Standing) -> Outlook:
    """Computed from the streams there will be once the backlog is done, so that what is let in stays within the gap."""
    streams = standing.streams
    each = standing.context / streams if streams else float(TYPICAL_CHUNK_START)
    decodes = StepLoad(streams, int(each * streams), streams)
    start = TYPICAL_CHUNK_START
    gap = promise.itl_s
    if gap is None:
        chunk, seats = budget, standing.capacity - streams
    else:
        step = MARGIN * gap
        fits = costs.tokens_within(step, decodes, start) if streams else budget
        chunk = max(1, min(budget, max(LEAST_CHUNK, fits)))
        # one more stream costs its own token and keys; a step must still have room for the least piece of a prompt
        one = StepLoad(streams + 1, int(each * (streams + 1)), streams + 1)
        cost = max(1e-9, costs.predict(one) - costs.predict(decodes))
        least = StepLoad(streams + LEAST_CHUNK, decodes.context + attended(start, LEAST_CHUNK), streams)
        seats = min(standing.capacity - streams, int((step - costs.predict(least)) / cost))
    whole = StepLoad(streams + chunk, decodes.context + attended(start, chunk), streams)
    per_token = costs.predict(whole) / chunk
    alone = costs.predict(StepLoad(budget, attended(0, budget), 1)) / budget
    return Outlook(
        streams=streams,
        seats=max(0, seats),
        wait_s=standing.backlog * per_token,
        token_s=per_token,
        unloaded_token_s=alone,
        step_s=costs.predict(whole if streams else StepLoad(1, 1, 1)),
        end_s=1.0 / standing.ends_per_s if standing.ends_per_s else UNKNOWN_END_S,
    )


@dataclass(frozen=True, slots=True)
class Newcomer:
    """What is known of a request before it is let in, and what is on the way that the outlook does not show yet."""

    tokens: int  # of its prompt
    waited_s: float  # since its HTTP arrival
    unseen: int = 0  # requests
    unseen_tokens: int = 0


def wait_needed(outlook: Outlook, promise: PromiseSettings, newcomer: Newcomer) -> float:
    """Seconds after which the promise could be kept for it; 0: now, also where nothing is promised.

    `ttft_ms` binds: a first token later than that, plus twice the prompt's own unloaded time, breaks the promise, and
    so does a stream too many for `itl_ms`.
    """
    if not promise.ttft_ms:
        return 0.0
    if not outlook.streams and not newcomer.unseen:
        return 0.0  # it would be no sooner at any other time
    missing = newcomer.unseen + 1 - outlook.seats
    wait = max(0, missing) * outlook.end_s
    first = outlook.wait_s + (newcomer.unseen_tokens + newcomer.tokens) * outlook.token_s
    first += 2 * outlook.step_s  # the one under way when it comes, and the one that carries its token out
    # Of the two parts of the allowance the greater alone, so that short prompts get theirs within ttft_ms itself.
    allowed = max(promise.ttft_ms / 1e3, UNLOADED * newcomer.tokens * outlook.unloaded_token_s) - newcomer.waited_s
    return max(wait, SAFETY * first - allowed)
