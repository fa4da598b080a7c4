"""Fills one step: who decodes, whose prompt is computed, who is let in and who must leave."""

from collections.abc import Callable

from headway.core.config import LaneSettings
from headway.core.events import Emission
from headway.core.lane import Lane
from headway.core.runner import Opening, Work
from headway.scheduling.cost_model import attended
from headway.scheduling.kv_room import KvRoom
from headway.scheduling.least_share import LeastShare
from headway.scheduling.pace import Pace
from headway.scheduling.plan import Counters, Plan
from headway.scheduling.policy import Policy
from headway.scheduling.requirements import Requirements
from headway.scheduling.running import RunningSet
from headway.scheduling.sequence import Sequence
from headway.scheduling.waiting import WaitingQueue
from headway.scheduling.wards import Wards


class Planner:
    """The order within a step: decodes of the interactive lanes; what a lane is owed at least; then lane by lane the
    prompts of those that run, those that come back after a preemption, and newcomers. Flex decodes come with their
    lane, as many as the time allows: so flex yields within one step."""

    def __init__(
        self,
        running: RunningSet,
        waiting: WaitingQueue,
        wards: Wards,
        requirements: Requirements,
        policy: Policy,
        pace: Pace,
        lanes: LaneSettings,
        budget: int,
        counters: Counters,
        fail: Callable[[Sequence, str], None],
    ) -> None:
        """`fail` ends a sequence that can never be served."""
        self.pace = pace
        self.kv = KvRoom(running, waiting, requirements, counters, fail)
        self._running = running
        self._waiting = waiting
        self._wards = wards
        self._blocks = running.blocks
        self._requirements = requirements
        self._budget = budget
        self._counters = counters
        self._fail = fail
        self._least = LeastShare(budget)
        self.reconfigure(lanes, policy)

    def reconfigure(self, lanes: LaneSettings, policy: Policy) -> None:
        """From the next plan on."""
        self.policy = policy
        self._least.share = lanes.least_share
        self.kv.spares_oldest_flex = lanes.least_share > 0
        self._long_share = lanes.long_prompt_share

    def fill(self, now: float) -> Plan:
        """A new plan; may preempt and let in."""
        self.kv.begin()
        plan = self._of_ward(self._wards.turn())
        if not plan.batch.work:
            plan = self._of_all(now)
        for _ in range(self._wards.groups):  # somebody can go on, or be let in
            if plan.batch.work:
                break
            ward = self._of_ward(self._wards.another())
            ward.emissions[:0] = plan.emissions
            plan = ward
        return plan

    def _of_ward(self, ward: int) -> Plan:
        """A step of these alone."""
        plan = Plan(ward=ward)
        for sequence in self._wards.members(ward):
            if sequence.slot is None:
                if self._outgrown(sequence):
                    continue
                if self._running.full or not self._enter(plan, sequence, 0, False):
                    break
            if not self._prefill(plan, sequence, self._budget, 0):
                break
        return plan

    def _of_all(self, now: float) -> Plan:
        """A step of all that are in no ward."""
        plan = Plan()
        prefills = self._interactive_decodes(plan)
        if prefills[Lane.PRIORITY] or prefills[Lane.DEFAULT]:
            self._jumps(plan, prefills)
        waiting = len(self._waiting)
        plan.owing = True
        for lane in (Lane.DEFAULT, Lane.FLEX):
            if due := self._least.due(lane):
                self._serve(plan, lane, prefills[lane], now, due)
        plan.owing = False
        for lane in Lane:
            if prefills[lane] or waiting:
                self._serve(plan, lane, prefills[lane], now, self._budget)
        busy = [bool(self._running.counts[lane] or self._waiting.count(lane)) for lane in Lane]
        self._least.settle(plan.lane_tokens, busy)
        return plan

    # -- decodes ---------------------------------------------------------------------------------------------------

    def _interactive_decodes(self, plan: Plan) -> list[list[Sequence]]:
        """Plans every sequence of the interactive lanes with one uncomputed token. The others by lane: flex ones, and
        those with more to compute."""
        work, sequences = plan.batch.work, plan.sequences
        rest: list[list[Sequence]] = [[], [], []]
        flex, priority = Lane.FLEX, Lane.PRIORITY
        context = urgent = 0
        running = self._running.sequences
        for sequence in running if not self._wards.count else [s for s in running if not s.ward]:
            start = sequence.computed
            known = sequence.known
            lane = sequence.lane
            if lane is flex or len(known) - start > 1:
                rest[lane].append(sequence)
                continue
            if start >= sequence.room:
                grown = self._blocks.grow(sequence, start + 1)
                assert grown, "there was a block for each"
            work.append(Work(sequence.slot, start, known[start:], sequence.tables, True))  # type: ignore[arg-type]
            sequences.append(sequence)
            context += start
            if lane is priority:
                urgent += 1
        plan.tokens = plan.decodes = count = len(work)
        plan.context = context + count
        plan.lane_tokens = [urgent, count - urgent, 0]
        return rest

    def _jumps(self, plan: Plan, prefills: list[list[Sequence]]) -> None:
        """Plans the interactive streams whose grammar has forced several tokens: a token each, and as many more as fit
        the promised gap. They wait for their next token like the others, and not for a turn among prompts."""
        jumps = [
            s
            for lane in (Lane.PRIORITY, Lane.DEFAULT)
            for s in prefills[lane]
            if s.computed == s.peak and s.computed >= s.prompt_length
        ]
        plan.decodes += len(jumps)
        for others, sequence in zip(range(len(jumps) - 1, -1, -1), jumps, strict=True):
            room = max(1, self._room(plan, sequence.lane, sequence.computed) - others)
            self._put(plan, sequence, self._covered(sequence, room))
            plan.samples_beyond -= 1  # it is among the decodes

    def _covered(self, sequence: Sequence, count: int) -> int:
        """How many of the next `count` tokens there are blocks for. A prompt has them all; who has jumped takes what
        the others leave, and one block at least, for which the plan has made room."""
        spare = max(1, self._blocks.available - len(self._running))
        end = min(sequence.computed + count, len(sequence.known), sequence.room + spare * self._blocks.block_size)
        if end > sequence.room and not self._blocks.grow(sequence, end):
            end = sequence.room
        return end - sequence.computed

    def _flex_decodes(self, plan: Plan, flex: list[Sequence], cap: int) -> None:
        left = self.pace.left(plan.load, self.pace.flex_time(plan.decodes))
        for sequence in flex:
            if sequence.uncomputed > 1 or sequence.slot is None or sequence.id in plan.taken:
                continue
            if plan.lane_tokens[Lane.FLEX] >= cap or plan.tokens >= self._budget:
                break
            left -= self.pace.decode_s(sequence.computed + 1)
            if left < 0 and plan.tokens and not plan.owing:
                break
            if sequence.computed >= sequence.room and not self._blocks.grow(sequence, sequence.computed + 1):
                continue  # newcomers have left none
            self._put(plan, sequence, 1)

    # -- prompts ---------------------------------------------------------------------------------------------------

    def _serve(self, plan: Plan, lane: Lane, mine: list[Sequence], now: float, cap: int) -> None:
        """Gives a lane up to `cap` tokens of the step, as far as budget and time allow. `mine`: what runs in it."""
        end = plan.tokens + cap
        if lane is Lane.FLEX:
            self._flex_decodes(plan, mine, cap)
        mine = [s for s in mine if s.uncomputed > 1 and s.slot is not None and s.id not in plan.taken]
        long = [s for s in mine if s.long]
        room = min(self._room(plan, lane, 0), end - plan.tokens)
        kept = int(room * self._long_share) if long or self._waiting.newcomer(lane, long=True) else 0
        for prefills, is_long in (([s for s in mine if not s.long], False), (long, True)):
            limit = end if is_long else end - kept
            spare = 0 if is_long else kept
            if self._in_turn(plan, lane, prefills, now, limit, spare):
                self._let_in(plan, lane, now, limit, spare, is_long, float("inf"))

    def _in_turn(self, plan: Plan, lane: Lane, prefills: list[Sequence], now: float, limit: int, spare: int) -> bool:
        """Prompts that have begun, those first whose tenant has had less, and before each the newcomers of tenants that
        have had less still. False: the step is full."""
        for sequence in sorted(prefills, key=self._waiting.turn):
            self._let_in(plan, lane, now, limit, spare, sequence.long, self._waiting.turn(sequence))
            if not self._prefill(plan, sequence, limit, spare):
                return False
        return True

    def _room(self, plan: Plan, lane: Lane, start: int) -> int:
        """Tokens from position `start` on that the step can still take, by its budget and by its time."""
        budget = self._budget - plan.tokens
        if budget <= 0:
            return 0
        if lane is Lane.FLEX and not plan.owing:
            return self.pace.flex_chunk(plan.load, plan.decodes, start, budget)
        return self.pace.chunk(plan.load, plan.decodes, start, budget)

    def _prefill(self, plan: Plan, sequence: Sequence, limit: int, spare: int) -> bool:
        """Plans as much of a sequence as there is room for, `spare` tokens less than the time allows. False: none."""
        room = self._room(plan, sequence.lane, sequence.computed)
        count = min(room - spare, limit - plan.tokens)
        if count <= 0:
            return False
        if count := self._covered(sequence, count):  # none: newcomers have left no block for a flex stream's jump
            self._put(plan, sequence, count)
        return True

    def _put(self, plan: Plan, sequence: Sequence, room: int) -> None:
        assert sequence.slot is not None
        start = sequence.computed
        tokens = sequence.known[start : start + room]
        sample = start + len(tokens) == len(sequence.known)
        plan.batch.work.append(Work(sequence.slot, start, tokens, sequence.tables, sample))
        plan.sequences.append(sequence)
        plan.taken.add(sequence.id)
        plan.samples_beyond += sample
        plan.tokens += len(tokens)
        plan.lane_tokens[sequence.lane] += len(tokens)
        plan.context += attended(start, len(tokens))

    # -- newcomers -------------------------------------------------------------------------------------------------

    def _let_in(self, plan: Plan, lane: Lane, now: float, limit: int, spare: int, long: bool, before: float) -> None:
        """Those whose turn is `before` another's. Who comes back after a preemption stands before newcomers, but after
        prompts that have begun."""
        waiting = self._waiting
        while waiting.count(lane):
            head = None if long or before < float("inf") else waiting.returning(lane)
            head = head or waiting.newcomer(lane, long)
            if head is None or (not head.started and waiting.turn(head) >= before):
                return
            if self._room(plan, lane, 0) - spare <= 0 or plan.tokens >= limit:
                return
            if not head.started and not self._seated(head, now):
                return
            if self._outgrown(head):
                continue
            if self._running.full and not self.kv.evict_flex(lane, plan.taken):
                return
            if not self._enter(plan, head, spare, self._least.full(lane)):
                return
            self._prefill(plan, head, limit, spare)

    def _outgrown(self, head: Sequence) -> bool:
        """It stopped when it had just outgrown the pool: then it ends."""
        length = len(head.known)
        if self._requirements.fits(length):
            return False
        self._fail(head, self._requirements.too_long(length))
        return True

    def _enter(self, plan: Plan, head: Sequence, spare: int, owed: bool) -> bool:
        """Gives a waiting sequence blocks and a slot, if the step has room for some of it too."""
        if not self.kv.admit(head, plan.taken, owed):
            return False
        if self._room(plan, head.lane, head.computed) - spare <= 0:  # its cached prefix makes its tokens dearer
            self._blocks.release(head)
            return False
        self._waiting.remove(head)
        if not head.started and not head.ward:  # who is in a ward takes no seat
            self.policy.joined()
        self._open(plan, head)
        return True

    def _seated(self, head: Sequence, now: float) -> bool:
        running, waiting = self._running, self._waiting
        ahead = len(running) if head.lane is Lane.FLEX else running.interactive
        return self.policy.seats(now, len(running), ahead, len(waiting), waiting.oldest.arrival) > 0

    def _open(self, plan: Plan, sequence: Sequence) -> None:
        slot = self._running.open(sequence)
        opening = Opening(slot, sequence.sampling, sequence.known[:], sequence.prompt_length)
        plan.batch.openings.append(opening)
        if sequence.started:
            return
        sequence.started = True
        sequence.cached_tokens = sequence.computed
        self._counters.cached_tokens += sequence.computed
        plan.started.append(sequence)
        plan.emissions.append(Emission(id=sequence.id, started=True, cached_tokens=sequence.cached_tokens))
