"""How much of a prompt a step may compute beside running decodes, so that their next token comes in time."""

from headway.scheduling.cost_model import CostModel, StepLoad

# Both sides progress: beside decodes that already fill the time, prompts still get this many tokens a step.
LEAST_CHUNK = 16
# Share of the promised gap that a step plans for: predictions miss by some per cent, and steps have neighbours.
MARGIN = 0.9


class Pace:
    """Turns the promised gap between tokens into tokens per step."""

    def __init__(self, costs: CostModel, gap_s: float | None) -> None:
        self._costs = costs
        self._gap_s = gap_s

    def chunk(self, planned: StepLoad, decodes: int, start: int, budget: int) -> int:
        """Tokens that a prompt computed up to `start` may add to what is planned; 0: none in this step.

        `budget` is what the step's token limit has left. Without decodes nobody waits for the step, and it is all.
        """
        if self._gap_s is None or not decodes:
            return budget
        # The least is for the first prompt; the others wait for their turn to be the first.
        least = LEAST_CHUNK - (planned.tokens - decodes)
        return min(budget, max(least, self._costs.tokens_within(MARGIN * self._gap_s, planned, start), 0))
