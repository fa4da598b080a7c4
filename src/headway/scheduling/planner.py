"""Fills one step: who decodes, whose prompt is computed, who is let in and who must leave."""

from collections.abc import Callable

from headway.core.config import LaneSettings
from headway.core.events import Emission
from headway.core.lane import Lane
from headway.core.runner import Opening, Work
from headway.scheduling.cost_model import attended
from headway.scheduling.forecast import Forecast
from headway.scheduling.pace import LEAST_CHUNK, Pace
from headway.scheduling.plan import Counters, Plan
from headway.scheduling.policy import Policy
from headway.scheduling.requirements import Requirements
from headway.scheduling.running import RunningSet
from headway.scheduling.sequence import Sequence
from headway.scheduling.victims import choose_victim, price
from headway.scheduling.waiting import WaitingQueue

MOST_OWED = 4 * LEAST_CHUNK  # tokens, or what one step owes: a lane does not get all that it missed at once
# Of all blocks, what the oldest flex sequence may hold without having to leave for newcomers of the other lanes.
SAFE_PART = 0.25
TYPICAL = 16  # running sequences, whose mean stands for a newcomer


class Planner:
    """The order within a step: decodes of the interactive lanes; what a lane is owed at least; then lane by lane the
    prompts of those that run, those that come back after a preemption, and newcomers. Flex decodes come with their
    lane, as many as the time allows: so flex yields within one step."""

    def __init__(
        self,
        running: RunningSet,
        waiting: WaitingQueue,
        requirements: Requirements,
        policy: Policy,
        pace: Pace,
        lanes: LaneSettings,
        budget: int,
        counters: Counters,
        fail: Callable[[Sequence, str], None],
    ) -> None:
        """`fail` ends a sequence that can never be served."""
        self.policy = policy
        self.pace = pace
        self.lanes = lanes
        self.forecast = Forecast(running.blocks.block_size)
        self.starved = False  # the last plan could not let a newcomer in for lack of blocks
        self._running = running
        self._waiting = waiting
        self._blocks = running.blocks
        self._requirements = requirements
        self._budget = budget
        self._counters = counters
        self._fail = fail
        self._owed = [0.0 for _ in Lane]  # tokens
        self._last_victim: int | None = None
        self._kept = [0 for _ in Lane]  # blocks kept from the lanes before, for one that is owed and needs them
        self._peaks: dict[bool, int] = {}  # this plan's forecast of blocks, with and without flex

    def fill(self, now: float) -> Plan:
        """A new plan; may preempt and let in."""
        plan = Plan()
        self.starved = False
        self._peaks.clear()
        if self._blocks.available < len(self._running):
            self._grow_all()  # else there is one for each
        prefills = self._interactive_decodes(plan)
        waiting = len(self._waiting)
        plan.owing = True
        for lane in (Lane.DEFAULT, Lane.FLEX):
            if self._owed[lane] >= LEAST_CHUNK:
                self._serve(plan, lane, prefills[lane], now, int(self._owed[lane]))
        plan.owing = False
        for lane in Lane:
            if prefills[lane] or waiting:
                self._serve(plan, lane, prefills[lane], now, self._budget)
        self._settle(plan)
        return plan

    # -- decodes ---------------------------------------------------------------------------------------------------

    def _grow_all(self) -> None:
        """A block for everyone whose next token needs one; somebody leaves if there is none."""
        for sequence in [s for s in self._running.sequences if s.computed >= s.room]:
            while sequence.slot is not None:
                length = len(sequence.known)
                if not self._requirements.fits(length):
                    self._fail(sequence, self._requirements.too_long(length))
                    self._running.sweep()
                elif self._blocks.grow(sequence, length):
                    break
                else:
                    self._preempt(choose_victim(self._running.sequences, self._last_victim))

    def _interactive_decodes(self, plan: Plan) -> list[list[Sequence]]:
        """Plans every sequence of the interactive lanes with one uncomputed token. The others by lane: flex ones, and
        those with more to compute."""
        work, sequences = plan.batch.work, plan.sequences
        rest: list[list[Sequence]] = [[], [], []]
        flex, priority = Lane.FLEX, Lane.PRIORITY
        context = urgent = 0
        for sequence in self._running.sequences:
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
        kept = int(room * self.lanes.long_prompt_share) if long or self._waiting.newcomer(lane, long=True) else 0
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
        waiting, running = self._waiting, self._running
        while waiting.count(lane):
            head = None if long or before < float("inf") else waiting.returning(lane)
            head = head or waiting.newcomer(lane, long)
            if head is None or (not head.started and waiting.turn(head) >= before):
                return
            if self._room(plan, lane, 0) - spare <= 0 or plan.tokens >= limit:
                return
            if not head.started and not self._seated(head, now):
                return
            length = len(head.known)
            if not self._requirements.fits(length):  # it was preempted when it had just outgrown the pool
                self._fail(head, self._requirements.too_long(length))
                continue
            if running.full and not self._evict_flex(plan, lane):
                return
            if not self._admit(plan, head):
                self.starved = True
                self._keep(head)
                return
            if self._room(plan, lane, head.computed) - spare <= 0:  # its cached prefix makes its tokens dearer
                self._blocks.release(head)
                return
            waiting.remove(head)
            self._kept[lane] = 0
            self._open(plan, head)
            self._prefill(plan, head, limit, spare)

    def _seated(self, head: Sequence, now: float) -> bool:
        running, waiting = self._running, self._waiting
        ahead = len(running) if head.lane is Lane.FLEX else running.interactive
        return self.policy.seats(now, len(running), ahead, len(waiting), waiting.oldest.arrival) > 0

    def _admit(self, plan: Plan, head: Sequence) -> bool:
        """Gives it blocks, if it is likely to end without anybody having to leave for it. Flex leaves for others."""
        if not self._foreseen(head):
            return False
        # One block of headroom for each that runs: all can grow once more before anybody is preempted, and who was
        # preempted in this very plan does not come straight back.
        while not self._blocks.admit(head, headroom=len(self._running) + self._kept_from(head.lane)):
            if not self._evict_flex(plan, head.lane):
                return False
        return True

    def _foreseen(self, head: Sequence) -> bool:
        running, size = self._running, self._blocks.block_size
        with_flex = head.lane is Lane.FLEX
        if with_flex and not self._safe(head) and any(map(self._waiting.count, (Lane.PRIORITY, Lane.DEFAULT))):
            return False  # it would have to leave for them
        if not (len(running) if with_flex else running.interactive):
            return True
        total = self._blocks.total - self._kept_from(head.lane)
        if (running.limits + head.limit) // size + len(running) + 1 <= total:
            return True  # even if all grow as long as they may
        if with_flex not in self._peaks:
            self._peaks[with_flex] = self.peak(with_flex)
        need = self._peaks[with_flex] + self.forecast.blocks(head)
        if need > total:
            return False
        self._peaks[with_flex] = need
        return True

    def kv_seats(self) -> int:
        """Interactive sequences of a typical size for whose blocks there will be room."""
        running, size, total = self._running, self._blocks.block_size, self._blocks.total
        if not running.interactive:
            return self._budget
        total -= self._kept_from(Lane.PRIORITY)
        some = running.sequences[:TYPICAL]
        typical = max(1, sum([self.forecast.blocks(s) for s in some]) // len(some))
        most = running.limits // size + len(running)
        peak = most if most + typical <= total else self.peak(with_flex=False)
        return max(0, total - peak) // typical

    def peak(self, with_flex: bool) -> int:
        """Blocks that those who run will hold at most, as far as is foreseen."""
        held = self._blocks.total - self._blocks.available
        sequences = self._running.sequences
        if not with_flex and self._running.counts[Lane.FLEX]:
            held -= sum([len(s.tables[0]) for s in self._running.flex])
            sequences = [s for s in sequences if s.lane is not Lane.FLEX]
        return self.forecast.peak(sequences, max(0, held))

    def _evict_flex(self, plan: Plan, lane: Lane) -> bool:
        """A flex sequence leaves for a newcomer of another lane. False: there is none."""
        flex = [] if lane is Lane.FLEX else self._running.flex[:]
        if flex and self.lanes.least_share and self._safe(flex[0]):
            del flex[0]  # or what it is owed would be spent on computing the same again and again
        flex = [s for s in flex if s.id not in plan.taken]
        if not flex:
            return False
        self._preempt(min(flex, key=price))
        return True

    def _safe(self, flex: Sequence) -> bool:
        """Whether it may stay while it is the oldest of its lane."""
        return self.forecast.blocks(flex) <= SAFE_PART * self._blocks.total

    def _keep(self, head: Sequence) -> None:
        """A lane that is owed all it can be, and lacks blocks, gets one more of those that fall free at each step."""
        if self._owed[head.lane] >= self._most_owed():
            need = min(self.forecast.blocks(head), int(SAFE_PART * self._blocks.total))
            self._kept[head.lane] = min(need, self._kept[head.lane] + 1)

    def _kept_from(self, lane: Lane) -> int:
        return sum(self._kept[lane + 1 :])

    def _most_owed(self) -> float:
        return max(MOST_OWED, self.lanes.least_share * self._budget)

    def _preempt(self, victim: Sequence) -> None:
        """The known tokens stay, and computing them again gives the same ones (decision 2)."""
        self._counters.preemptions += 1
        self._last_victim = victim.id
        self._running.remove(victim)
        self._waiting.add(victim)

    def _open(self, plan: Plan, sequence: Sequence) -> None:
        slot = self._running.open(sequence)
        opening = Opening(slot, sequence.sampling, sequence.known[:], sequence.prompt_length)
        plan.batch.openings.append(opening)
        if sequence.started:
            return
        self.policy.joined()
        sequence.started = True
        sequence.cached_tokens = sequence.computed
        self._counters.cached_tokens += sequence.computed
        plan.started.append(sequence)
        plan.emissions.append(Emission(id=sequence.id, started=True, cached_tokens=sequence.cached_tokens))

    # -- what lanes are owed ---------------------------------------------------------------------------------------

    def _settle(self, plan: Plan) -> None:
        """A lane with work is owed its least share of what the lanes before it got."""
        before = plan.lane_tokens[Lane.PRIORITY]
        for lane in (Lane.DEFAULT, Lane.FLEX):
            got = plan.lane_tokens[lane]
            if self._running.counts[lane] or self._waiting.count(lane):
                owed = self._owed[lane] + self.lanes.least_share * before - got
                self._owed[lane] = min(self._most_owed(), max(0.0, owed))
            else:
                self._owed[lane] = 0.0
            if not self._waiting.count(lane):
                self._kept[lane] = 0
            before += got
