"""How much a step may compute beside running decodes, so that their next token comes in time."""

from headway.scheduling.cost_model import CostModel, StepLoad

# Both sides progress: beside decodes that already fill the time, prompts still get this many tokens a step.
LEAST_CHUNK = 16
# Share of the promised gap that a step plans for: predictions miss by some per cent, and steps have neighbours.
MARGIN = 0.85
# A cost not seen for a while is assumed dearer by one standard deviation; the first piece of a prompt makes it known.
CAUTION = 1.0
# Where nobody but flex runs, a step may take so many times the shortest one, if that is more than the gap: weights are
# read once for many tokens.
FLEX_STEPS = 2.0


class Pace:
    """Turns the promised gap between tokens into tokens per step. `margin` is set by self-tuning."""

    def __init__(self, costs: CostModel, gap_s: float | None) -> None:
        self._costs = costs
        self.gap_s = gap_s
        self.margin = MARGIN
        self.least = LEAST_CHUNK

    def chunk(self, planned: StepLoad, decodes: int, start: int, budget: int) -> int:
        """Tokens that a prompt computed up to `start` may add to what is planned; 0: none in this step.

        `budget` is what the step's token limit has left. Without decodes nobody waits for the step, and it is all.
        """
        if self.gap_s is None or not decodes:
            return budget
        # The least is for the first prompt; the others wait for their turn to be the first.
        least = self.least - (planned.tokens - decodes)
        fits = self._costs.tokens_within(self.margin * self.gap_s, planned, start, CAUTION)
        return min(budget, max(least, fits, 0))

    def typical_chunk(self, decodes: StepLoad, budget: int) -> int:
        """Tokens of a new prompt that a step takes beside `decodes`."""
        return self.chunk(decodes, decodes.sequences, 0, max(0, budget - decodes.tokens))

    def flex_time(self, decodes: int) -> float:
        """Seconds that a step with flex work may take: who comes meanwhile waits no longer than for any step."""
        if self.gap_s is None:
            return float("inf")
        time = self.margin * self.gap_s
        return time if decodes else max(time, FLEX_STEPS * self._costs.predict(StepLoad(1, 1, 1)))

    @property
    def flex_step_s(self) -> float:
        """Seconds that flex fills each step up to; 0 where nothing is promised, and any step may be long."""
        return self.margin * (self.gap_s or 0.0)

    def left(self, load: StepLoad, seconds: float) -> float:
        """Of `seconds`, what a step of this load leaves."""
        return seconds - self._costs.predict(load)

    def decode_s(self, context: int) -> float:
        """Seconds that one more decode of so many keys adds."""
        return self._costs.decode_s(context)

    def flex_chunk(self, planned: StepLoad, decodes: int, start: int, budget: int) -> int:
        """As `chunk`, for flex: nothing but what the time has left, and the least if the step is empty."""
        if self.gap_s is None:
            return budget
        fits = self._costs.tokens_within(self.flex_time(decodes), planned, start, CAUTION)
        return min(budget, max(fits, 0 if planned.tokens else self.least))
