"""What plan() decides and commit() completes."""

from dataclasses import dataclass, field

from headway.core.events import Emission
from headway.core.lane import Lane
from headway.core.runner import Batch
from headway.scheduling.cost_model import StepLoad
from headway.scheduling.sequence import Sequence


@dataclass(slots=True)
class Plan:
    """One step: `sequences[i]` owns `batch.work[i]`. A plan with work must be committed; an empty one is done.

    `emissions` are what is known before the step computes: started sequences, and those that ended without it.
    """

    batch: Batch = field(default_factory=lambda: Batch([]))
    sequences: list[Sequence] = field(default_factory=list)
    started: list[Sequence] = field(default_factory=list)  # planned for the first time
    emissions: list[Emission] = field(default_factory=list)
    tokens: int = 0
    context: int = 0  # keys attended, summed over the tokens
    ward: int = 0  # whose step it is; 0: of all that are in none
    decodes: int = 0  # interactive sequences that wait for their next token, not for their first
    lane_tokens: list[int] = field(default_factory=lambda: [0 for _ in Lane])
    # While it is made:
    taken: set[int] = field(default_factory=set)  # ids of those in it, but for interactive decodes
    samples_beyond: int = 0  # sequences beside `decodes` that get a token
    owing: bool = False  # what is planned now is owed to the lane, whatever the time

    @property
    def samples(self) -> int:
        return self.decodes + self.samples_beyond

    @property
    def load(self) -> StepLoad:
        """What the step's time depends on."""
        return StepLoad(self.tokens, self.context, self.samples)


@dataclass(slots=True)
class Counters:
    """Since start."""

    steps: int = 0
    computed_tokens: int = 0
    cached_tokens: int = 0
    preemptions: int = 0
    recomputed_tokens: int = 0
    finished: int = 0
