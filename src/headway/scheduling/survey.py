"""One look over all live sequences: what each lane has, and what has yet to be computed."""

from dataclasses import dataclass

from headway.core.events import LaneLoad
from headway.core.lane import Lane
from headway.scheduling.admission import Demand
from headway.scheduling.cost_model import StepLoad, attended
from headway.scheduling.ledger import Account
from headway.scheduling.scheduler import Scheduler


@dataclass(frozen=True, slots=True)
class Survey:
    """Lists are by lane."""

    lanes: list[LaneLoad]
    short: list[int]  # tokens to compute before every sequence is down to one uncomputed token
    long: list[int]  # the same, of very long prompts
    long_keys: list[int]  # and the keys that these attend to
    context: int  # keys that the next token of all interactive sequences attends to
    begun: dict[Account, int]  # tokens left of prompts that are not very long and have begun
    decodes: StepLoad  # of the interactive sequences that run and have one token to compute

    @property
    def streams(self) -> int:
        """Interactive sequences, running and waiting."""
        return sum([self.lanes[lane].running + self.lanes[lane].waiting for lane in (Lane.PRIORITY, Lane.DEFAULT)])

    @property
    def backlog(self) -> int:
        return sum(self.short) + sum(self.long)

    def demand(self, lane: Lane, room: int) -> Demand:
        """What stands before a newcomer of the lane."""
        lanes = self.lanes[: lane + 1]
        return Demand(sum([entry.waiting for entry in lanes]), sum([entry.tokens for entry in lanes]), room)


def survey_of(scheduler: Scheduler) -> Survey:
    waiting, running = scheduler.waiting, scheduler.running
    long = [waiting.long_tokens(lane) for lane in Lane]
    short = [waiting.tokens(lane) - long[lane] for lane in Lane]
    long_keys = [waiting.long_keys(lane) for lane in Lane]
    context = sum([waiting.tokens(lane) for lane in (Lane.PRIORITY, Lane.DEFAULT)])
    begun: dict[Account, int] = {}
    decodes = keys = 0
    for sequence in running.sequences:
        computed = sequence.computed
        left = len(sequence.known) - computed - 1
        lane = sequence.lane
        if left:
            (long if sequence.long else short)[lane] += left
            if sequence.long:
                long_keys[lane] += attended(computed, left)
            else:
                begun[sequence.account] = begun.get(sequence.account, 0) + left
        if lane != Lane.FLEX:
            context += computed
            if not left:
                decodes += 1
                keys += computed + 1
    lanes = [LaneLoad(waiting.count(lane), running.counts[lane], short[lane] + long[lane]) for lane in Lane]
    return Survey(lanes, short, long, long_keys, context, begun, StepLoad(decodes, keys, decodes))
