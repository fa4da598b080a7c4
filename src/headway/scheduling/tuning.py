"""Self-tuning: what runs at once and how full a step is planned follow what the steps really took."""

from collections import deque
from dataclasses import dataclass

from headway.core.config import PromiseSettings, TuningSettings
from headway.scheduling.pace import LEAST_CHUNK, MARGIN, Pace
from headway.scheduling.policy import Policy

WINDOW = 100  # steps with streams waiting for them, between two decisions
MOST_LATE = 0.01  # share of gaps beyond TAIL times the promised one
TAIL = 1.2
ENOUGH = 25  # steps without a prompt, or with the least of one, that tell what the streams alone take
BUSY = 0.8  # of the promised gap: below, there is room to grow
STEP_DOWN, STEP_UP = 0.9, 1.03
LOWEST, HIGHEST = 0.6, 0.9  # bounds of the margin
REMEMBERED = 256  # decisions


@dataclass(frozen=True, slots=True)
class Decision:
    """One change, and the measurement that asked for it."""

    time: float  # Clock seconds
    what: str  # batch_limit | margin
    old: float
    new: float
    why: str


@dataclass(slots=True)
class Window:
    """What was seen since the last decision. Steps with more of prompts and flex than the least are as long as they
    were planned, and say something about the margin; the others say how many streams there is time for."""

    gaps: int = 0
    late: int = 0
    wide: int = 0  # steps with more than the least
    wide_late: int = 0
    narrow: int = 0
    narrow_s: float = 0.0
    streams: int = 0  # most at once


class Tuner:
    """Additive increase, multiplicative decrease. The batch limit is for interactive sequences under continuous
    batching (the other policies name their own batch); the margin is the share of the gap that steps plan for, and with
    it the size of the pieces of prompts."""

    def __init__(
        self, settings: TuningSettings, promise: PromiseSettings, policy: Policy, pace: Pace, most: int
    ) -> None:
        self.limit = most
        self.ups = self.downs = 0
        self.decisions: deque[Decision] = deque(maxlen=REMEMBERED)
        self._taken = 0
        self._most = most
        self._pace = pace
        self._window = Window()
        self.reconfigure(settings, promise, policy)

    def reconfigure(self, settings: TuningSettings, promise: PromiseSettings, policy: Policy) -> None:
        """Starts anew from the upper bounds where tuning ends or the promise changes."""
        gap = promise.itl_s
        if not settings.enabled or gap is None or gap != self._pace.gap_s:
            self.limit, self._pace.margin = self._most, MARGIN
        self._settings = settings
        self._gap_s = gap if settings.enabled else None
        self._pace.gap_s = gap
        self._pace.least = settings.min_chunk_tokens if settings.enabled else LEAST_CHUNK
        self._policy = policy
        policy.set_limit(self.limit)

    def observe(self, now: float, gap_s: float, streams: int, others: int) -> None:
        """One step as those see it who waited for its token: `streams` of them, beside `others`, tokens of prompts and
        of flex."""
        if self._gap_s is None or not streams:
            return
        window = self._window
        window.gaps += 1
        window.streams = max(window.streams, streams)
        late = gap_s > TAIL * self._gap_s
        window.late += late
        if others > self._pace.least:
            window.wide += 1
            window.wide_late += late
        else:
            window.narrow += 1
            window.narrow_s += gap_s
        if window.gaps >= WINDOW:
            self._decide(now, window, self._gap_s)
            self._window = Window()

    def take_new(self) -> list[Decision]:
        """Decisions since the last call, for a log."""
        made = self.ups + self.downs
        new, self._taken = made - self._taken, made
        return list(self.decisions)[-new:] if new else []

    def _decide(self, now: float, window: Window, gap: float) -> None:
        mean = window.narrow_s / window.narrow if window.narrow >= ENOUGH else None
        shown = "" if mean is None else f"mean gap {mean * 1e3:.1f} of {gap * 1e3:g} ms without prompts, "
        seen = f"{shown}{window.late / window.gaps:.0%} late, {window.streams} streams"
        if mean is not None and mean > gap:
            # in proportion if they are far too many
            fewer = int(window.streams * min(STEP_DOWN, gap / mean))
            self._set_limit(now, max(self._settings.min_sequences, min(self.limit - 1, fewer)), seen)
        elif window.wide_late > MOST_LATE * window.gaps:
            self._set_margin(now, max(LOWEST, self._pace.margin * STEP_DOWN), seen)
        elif mean is not None and mean < BUSY * gap and window.streams >= self.limit:
            self._set_limit(now, min(self._most, self.limit + max(1, self.limit // 10)), seen)
        elif not window.late and window.wide:
            self._set_margin(now, min(HIGHEST, self._pace.margin * STEP_UP), seen)

    def _set_limit(self, now: float, new: int, why: str) -> None:
        new = min(new, self._most)
        if new == self.limit:
            return
        self._note(Decision(now, "batch_limit", self.limit, new, why))
        self.limit = new
        self._policy.set_limit(new)

    def _set_margin(self, now: float, new: float, why: str) -> None:
        old = self._pace.margin
        if abs(new - old) < 1e-3:
            return
        self._note(Decision(now, "margin", round(old, 3), round(new, 3), why))
        self._pace.margin = new

    def _note(self, decision: Decision) -> None:
        self.decisions.append(decision)
        if decision.new > decision.old:
            self.ups += 1
        else:
            self.downs += 1
