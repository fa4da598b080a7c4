"""How long a step takes, learned from the steps so far (decision 3: time is budgeted, not tokens)."""

from collections import deque
from dataclasses import dataclass

from headway.core.runner import Batch


@dataclass(frozen=True, slots=True)
class StepLoad:
    """What a step's time depends on."""

    tokens: int  # computed
    context: int  # keys attended, summed over the computed tokens
    sequences: int  # that get a token sampled

    @classmethod
    def of(cls, batch: Batch) -> "StepLoad":
        tokens = context = sequences = 0
        for work in batch.work:
            count = len(work.tokens)
            tokens += count
            context += attended(work.start, count)
            sequences += work.sample
        return cls(tokens, context, sequences)


def attended(start: int, count: int) -> int:
    """Keys that `count` tokens from position `start` on attend to, themselves included."""
    return count * start + count * (count + 1) // 2


NAMES = ("step", "prompt_token", "thousand_keys", "sequence")  # what each coefficient is the cost of
PRIOR_S = (2e-3, 5e-4, 2e-5, 6e-4)  # a small model on a small CPU; forgotten within a few dozen steps
NOISE = 0.1  # relative spread of a step's time that is nobody's fault
DRIFT = 0.02  # relative change of a coefficient per step that the model expects
CLIP = 3.0  # residuals beyond so many typical ones are outliers: a core was taken away, a page fault
ENOUGH = 50  # steps, before what was learned is worth something
REMEMBERED = 101  # residuals, for the median


class CostModel:
    """seconds = a + b * prompt tokens + c * context + d * sequences, by a Kalman filter: coefficients drift slowly.

    A sequence's own token counts with the sequence, and only the others as prompt tokens: otherwise steps that merely
    decode could not tell the two costs apart, and would spoil what was learned of prompts.

    A residual enters relative to the prediction, clipped at three typical ones, so that one stalled step moves little
    and a lasting change moves everything within some dozens of steps. A coefficient is never negative.
    """

    def __init__(self, coefficients: tuple[float, ...] = PRIOR_S) -> None:
        self._learned = learned = coefficients is not PRIOR_S
        self._w = list(coefficients)
        size = len(self._w)
        widths = [(0.5 if learned else 2.0) * max(w, p / 10) for w, p in zip(self._w, PRIOR_S, strict=True)]
        self._p = [[widths[i] ** 2 if i == j else 0.0 for j in range(size)] for i in range(size)]
        self._widest = [self._p[i][i] for i in range(size)]
        self._errors: deque[float] = deque(maxlen=REMEMBERED)
        self.observed = 0

    @property
    def coefficients(self) -> tuple[float, ...]:
        """What a later life may start from."""
        return tuple(self._w)

    @property
    def known(self) -> bool:
        """Whether predictions are more than a guess."""
        return self._learned or self.observed >= ENOUGH

    @property
    def median_error(self) -> float | None:
        """The median relative error of the recent predictions, each made before its step was seen."""
        return sorted(self._errors)[len(self._errors) // 2] if self._errors else None

    def predict(self, load: StepLoad) -> float:
        """Seconds."""
        w = self._w
        extra = load.tokens - load.sequences
        return w[0] + w[1] * extra + w[2] * (load.context * 1e-3) + w[3] * load.sequences

    def decode_s(self, context: int) -> float:
        """Seconds that one more sequence with so many keys adds to a step."""
        return self._w[3] + self._w[2] * (context * 1e-3)

    def tokens_within(self, seconds: float, base: StepLoad, start: int, caution: float = 0.0) -> int:
        """How many tokens of one more prompt, from position `start` on, fit beside `base` into a step so long.

        `caution`: by how many standard deviations a token is assumed dearer than it is thought to be.
        """
        w = self._w
        slack = seconds - self.predict(base)
        if slack <= 0:
            return 0
        # b n + c (n start + n (n + 1) / 2) = slack
        b, c = w[1] + caution * self._p[1][1] ** 0.5 + w[2] * 1e-3 * (start + 0.5), w[2] * 1e-3 / 2
        if c <= 0:
            return int(slack / b) if b > 0 else 1 << 30
        return int(((b * b + 4 * c * slack) ** 0.5 - b) / (2 * c))

    def observe(self, load: StepLoad, seconds: float) -> None:
        """Learns from one step."""
        expected = max(1e-6, self.predict(load))
        error = seconds - expected
        typical = self.median_error
        self._errors.append(abs(error) / seconds)
        self.observed += 1
        bound = CLIP * expected * max(NOISE, typical or 1.0)
        error = max(-bound, min(bound, error))
        x = (1.0, float(load.tokens - load.sequences), load.context * 1e-3, float(load.sequences))
        p, w = self._p, self._w
        px = [row[0] * x[0] + row[1] * x[1] + row[2] * x[2] + row[3] * x[3] for row in p]
        spread = (NOISE * expected) ** 2 + x[0] * px[0] + x[1] * px[1] + x[2] * px[2] + x[3] * px[3]
        for i in range(4):
            gain = px[i] / spread
            w[i] = max(0.0, w[i] + gain * error)
            row = p[i]
            for j in range(4):
                row[j] -= gain * px[j]
        for i in range(4):
            # uncertainty grows back, but in a direction that no step tells of not without bound
            row = p[i]
            row[i] = min(self._widest[i], max(row[i], 0.0) + (DRIFT * max(w[i], PRIOR_S[i] / 10)) ** 2)
