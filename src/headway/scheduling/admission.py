"""Which requests the queue takes: the exact second check (serving/gate makes the early one from the last Load)."""

from dataclasses import dataclass
from math import exp

from headway.core.config import QueueSettings

LONGEST_RETRY_S = 60.0
SHORTEST_RETRY_S = 0.05
UNKNOWN_WAIT_S = 1.0  # before anything has been measured
USUAL = 0.9  # share of prompts that are no longer than the usual one
LEARN = 0.1  # relative step of that length, per prompt
KEPT = 0.97  # share of first tokens that come in the time that was allowed for
LEARN_CAUTION = 0.01
LEAST_CAUTION, MOST_CAUTION = 0.8, 1.5
LEAST_TELLING_S = 0.2  # shorter predictions are mostly the step under way
MEMORY_S = 5.0  # seconds of computing that a rate looks back on


class Rate:
    """An amount per second of computing, the recent past counting most. Idle time does not count."""

    def __init__(self) -> None:
        self._amount = 0.0
        self._seconds = 0.0

    def record(self, amount: float, seconds: float) -> None:
        keep = exp(-seconds / MEMORY_S)
        self._amount = self._amount * keep + amount
        self._seconds = self._seconds * keep + seconds

    @property
    def per_second(self) -> float | None:
        return self._amount / self._seconds if self._seconds > 0 else None


@dataclass(frozen=True, slots=True)
class Demand:
    """What stands before a newcomer: its own lane, and the lanes that go first."""

    waiting: int  # requests in the queue
    waiting_tokens: int  # their tokens
    room: int  # how many of them could join the running set at the next step


class Admission:
    """Bounds the queue by count and tokens, and says when a refused request should come back."""

    def __init__(self, settings: QueueSettings) -> None:
        self.settings = settings
        self._tokens = Rate()
        self._finishes = Rate()
        self.usual_prompt = 0.0  # tokens that most prompts of late do not exceed
        self.caution = 1.05  # times the prediction in which nearly all first tokens of late have come

    def record(self, tokens: int, finishes: int, seconds: float) -> None:
        """What one step computed, and how many sequences it ended."""
        self._tokens.record(tokens, seconds)
        self._finishes.record(finishes, seconds)

    def saw_prompt(self, tokens: int) -> None:
        """Somebody wants so many prompt tokens computed. The quantile climbs and falls by steps that balance at USUAL
        (Robbins and Monro 1951), so that one very long prompt moves it by no more than another."""
        step = LEARN * max(self.usual_prompt, 64.0)
        self.usual_prompt += step * (USUAL if tokens > self.usual_prompt else USUAL - 1.0)

    def saw_first_token(self, predicted_s: float, seconds: float) -> None:
        """A first token came after `seconds`, predicted when its request was let in. The same kind of quantile."""
        if predicted_s >= LEAST_TELLING_S:
            change = KEPT if seconds > self.caution * predicted_s else KEPT - 1.0
            self.caution = min(MOST_CAUTION, max(LEAST_CAUTION, self.caution + LEARN_CAUTION * change))

    @property
    def ends_per_s(self) -> float | None:
        """Sequences ended per second of computing."""
        return self._finishes.per_second

    def problem(self, demand: Demand, prompt_tokens: int) -> str | None:
        """Why the queue does not take one more. A request that is next and has a seat is always taken."""
        limits = self.settings
        if demand.waiting + 1 - demand.room > limits.max_requests:
            return f"the queue is full: {demand.waiting} requests wait"
        tokens = demand.waiting_tokens + prompt_tokens
        if tokens > limits.max_tokens and (demand.waiting or demand.room < 1):
            return f"the queue is full: {tokens} prompt tokens would wait, of at most {limits.max_tokens}"
        return None

    def predicted_wait_s(self, demand: Demand, backlog: int) -> float:
        """Until a request queued now would be planned first: the `backlog` of tokens to compute before, at the recent
        speed, or the ends it needs to see, at their recent pace. Coarse; a cost model will know better."""
        wait = 0.0
        if demand.waiting:
            speed = self._tokens.per_second
            wait = backlog / speed if speed else UNKNOWN_WAIT_S
        ends = demand.waiting + 1 - demand.room
        if ends > 0:
            pace = self._finishes.per_second
            wait = max(wait, ends / pace if pace else UNKNOWN_WAIT_S)
        return wait

    def retry_after_s(self, demand: Demand, backlog: int) -> float:
        """When a refused request should come back."""
        return min(LONGEST_RETRY_S, max(SHORTEST_RETRY_S, self.predicted_wait_s(demand, backlog)))
