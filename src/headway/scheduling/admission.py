"""Which requests the queue takes: the exact second check (serving/gate makes the early one from the last Load)."""

from dataclasses import dataclass
from math import exp

from headway.core.config import QueueSettings
from headway.scheduling.quantile import Quantile

USUAL = 0.9  # share of prompts that are no longer than the usual one
LEARN_PROMPT = 0.1  # relative step of its length, per prompt
SHORT_PROMPT = 64.0  # tokens; below, the step gets no smaller
KEPT = 0.97  # share of first tokens that come in the time that was allowed for
LEARN_CAUTION = 0.01
UNKNOWN_CAUTION = 1.05
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

    @property
    def ends_needed(self) -> int:
        """Sequences that must end before it can join."""
        return max(0, self.waiting + 1 - self.room)


class Admission:
    """Bounds the queue by count and tokens, and learns from steps and arrivals what an outlook is made of."""

    def __init__(self, settings: QueueSettings) -> None:
        self.settings = settings
        self._finishes = Rate()
        self._prompts = Quantile(USUAL, 0.0, LEARN_PROMPT)
        self._lateness = Quantile(KEPT, UNKNOWN_CAUTION, LEARN_CAUTION)

    def problem(self, demand: Demand, prompt_tokens: int) -> str | None:
        """Why the queue does not take one more. A request that is next and has a seat is always taken."""
        limits = self.settings
        if demand.ends_needed > limits.max_requests:
            return f"the queue is full: {demand.waiting} requests wait"
        tokens = demand.waiting_tokens + prompt_tokens
        if tokens > limits.max_tokens and (demand.waiting or demand.room < 1):
            return f"the queue is full: {tokens} prompt tokens would wait, of at most {limits.max_tokens}"
        return None

    def saw_ends(self, count: int, seconds: float) -> None:
        """One step ended so many sequences."""
        self._finishes.record(count, seconds)

    def saw_prompt(self, tokens: int) -> None:
        """Somebody wants so many prompt tokens computed."""
        self._prompts.observe(tokens, max(self._prompts.value, SHORT_PROMPT))

    def saw_first_token(self, predicted_s: float, seconds: float) -> None:
        """A first token came after `seconds`, predicted when its request was let in."""
        if predicted_s >= LEAST_TELLING_S:
            self._lateness.observe(seconds / predicted_s)

    @property
    def ends_per_s(self) -> float | None:
        """Sequences ended per second of computing; None before any step."""
        return self._finishes.per_second

    @property
    def usual_prompt(self) -> float:
        """Tokens that most prompts of late do not exceed."""
        return self._prompts.value

    @property
    def caution(self) -> float:
        """Times the prediction in which nearly all first tokens of late have come."""
        return min(MOST_CAUTION, max(LEAST_CAUTION, self._lateness.value))
