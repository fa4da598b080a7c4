"""What the engine tells its listener about one step."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StepRecord:
    """Durations in seconds; they follow each other in this order and add up to the step."""

    step: int
    time: float  # Clock seconds when planning began
    plan_s: float
    publish_s: float  # runs while the step computes
    execute_s: float  # from submit to the result, publishing included
    compute_s: float  # of that, inside the runner, as it says itself
    commit_s: float
    tokens: int  # computed
    sequences: int  # in the batch
    waiting: int  # after the step
    running: int
