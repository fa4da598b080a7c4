"""Who computes what in the next step. plan() and commit() are the only verbs of the loop (decision 1)."""

from headway.core.config import Settings
from headway.core.events import Emission, Finish
from headway.core.request import EngineRequest
from headway.core.runner import Opening, RunnerInfo, Sampled, StepResult, Work
from headway.scheduling.blocks import KvBlocks
from headway.scheduling.cost_model import CostModel, attended
from headway.scheduling.deadlines import Deadlines
from headway.scheduling.pace import Pace
from headway.scheduling.plan import Counters, Plan
from headway.scheduling.policy import make_policy
from headway.scheduling.requirements import Requirements
from headway.scheduling.sequence import Sequence
from headway.scheduling.waiting import WaitingQueue


class Scheduler:
    """Owns all live sequences. Pure: time comes in as `now`, tokens as a StepResult."""

    def __init__(self, info: RunnerInfo, settings: Settings, costs: CostModel) -> None:
        self.info = info
        self.context = min(info.context, settings.engine.context or info.context)
        self.budget = min(settings.engine.max_step_tokens, info.max_batch_tokens)
        # No more running sequences than tokens in a step: then every decode gets its token in every step, and the
        # oldest prefill at least one. Neither can starve the other.
        self.capacity = min(settings.engine.max_sequences, info.slots, self.budget)
        self.policy = make_policy(settings.batching, self.capacity)
        self._queue_s = settings.promise.queue_s
        self.pace = Pace(costs, settings.promise.itl_s)
        self.blocks = KvBlocks(info, settings.engine.prefix_cache)
        self.counters = Counters()
        self.waiting = WaitingQueue()
        self.running: list[Sequence] = []  # oldest first
        self._live: dict[int, Sequence] = {}
        self._slots = list(range(self.capacity - 1, -1, -1))
        self._deadlines = Deadlines()
        self._requirements = Requirements(self.context, self.blocks.capacity, info.vocab_size)
        self._ends = frozenset(info.end_ids)
        self._serial = 0
        self._news: list[Emission] = []  # for the next plan
        self._planned: Plan | None = None  # between plan and commit
        self._starved = False  # the last plan could not let the head of the queue in for lack of blocks

    @property
    def has_work(self) -> bool:
        return bool(self._live or self._news)

    @property
    def room(self) -> int:
        """How many newcomers could join without waiting for another to finish, as far as is known."""
        return 0 if self._starved else self.policy.room(len(self.running))

    def is_live(self, request: int) -> bool:
        return request in self._live

    def backlog(self) -> int:
        """Tokens to compute before every live sequence is down to one uncomputed token."""
        return self.waiting.tokens + sum([len(s.known) - s.computed - 1 for s in self.running])

    def next_ask(self, now: float) -> float | None:
        """When plan() may have something to do; None: not before an event (a request, a cancel)."""
        if self._news or self.running:
            return now
        if not self.waiting:
            return None
        head = self.waiting.head
        times = [now] if head.started else []
        asked = self.policy.next_ask(0, len(self.waiting), head.arrival)
        times += [] if asked is None else [asked]
        times += [] if self._deadlines.next is None else [self._deadlines.next]
        return max(now, min(times)) if times else None

    def add(self, request: EngineRequest) -> None:
        """Queues a request. One that can never be served ends in the next plan, before it costs anything."""
        problem = self._requirements.problem(request)
        if request.id in self._live:
            problem = f"request id {request.id} is already live"
        if problem is not None:
            self._news.append(Emission(id=request.id, finish=Finish.FAILED, detail=problem))
            return
        if request.sampling.max_tokens < 1:
            self._news.append(Emission(id=request.id, started=True, finish=Finish.LENGTH))
            return
        sequence = Sequence(request, self._serial, self.context, self._ends)
        self._serial += 1
        if self._queue_s:
            sequence.queue_end = request.arrival + self._queue_s
        self._live[sequence.id] = sequence
        self.waiting.add(sequence)
        self._deadlines.add(sequence)
        self._deadlines.compact(self._live.values(), len(self._live))

    def cancel(self, request: int, reason: str) -> None:
        """Ends a request in any state: now, or at the commit if a step is computing it. An unknown id is fine."""
        sequence = self._live.get(request)
        if sequence is None:
            return
        self._news.append(self._end(sequence, Finish.CANCELLED, reason))
        if self._planned is None:
            self._sweep()

    def plan(self, now: float) -> Plan:
        """Decodes first, then prefill chunks of those running, then newcomers: each oldest first."""
        assert self._planned is None, "the last plan has not been committed"
        self._expire(now)
        plan = Plan()
        self._starved = False
        prefills = self._plan_decodes(plan)
        for sequence in prefills:
            if not self._put(plan, sequence):
                break
        if self.waiting:
            self._let_in(plan, now)
        plan.emissions[:0] = self._news
        self._news = []
        if plan.batch.work:
            self._planned = plan
        return plan

    def commit(self, plan: Plan, result: StepResult) -> list[tuple[Sequence, Emission]]:
        """Takes a computed step's tokens; ends and frees those that are done."""
        assert plan is self._planned, "commit() takes the plan that is in flight"
        self._planned = None
        counters, block_size = self.counters, self.blocks.block_size
        counters.steps += 1
        counters.computed_tokens += plan.tokens
        emissions: list[tuple[Sequence, Emission]] = []
        ended = False
        for sequence, work, sampled in zip(plan.sequences, plan.batch.work, result.sampled, strict=True):
            if sequence.finish is None:
                counters.recomputed_tokens += sequence.advance(len(work.tokens))
                failed = sampled is not None and sampled.error is not None  # then nobody may share its blocks
                if not failed and sequence.computed - sequence.registered * block_size >= block_size:
                    self.blocks.commit(sequence)
                if sampled is not None:
                    emissions.append((sequence, self._take(sequence, sampled)))
            if sequence.finish is not None:  # now, or by a cancel while the step computed
                ended = True
        if ended:
            self._sweep()
        return emissions

    def check_integrity(self) -> None:
        """Asserts every invariant that holds between steps."""
        self.blocks.check_integrity(self.running)
        for sequence in self._live.values():
            sequence.check()
        assert len(self._live) == len(self.running) + len(self.waiting)
        assert self.waiting.tokens == sum(len(s.known) for s in self.waiting)
        orders = [s.order for s in self.running]
        assert orders == sorted(orders) and len(orders) <= self.capacity
        assert sorted(self._slots + [s.slot for s in self.running if s.slot is not None]) == list(range(self.capacity))

    # -- parts of plan ---------------------------------------------------------------------------------------------

    def _plan_decodes(self, plan: Plan) -> list[Sequence]:
        """Plans every sequence with one uncomputed token; returns the running ones with more."""
        running, work, sequences = self.running, plan.batch.work, plan.sequences
        prefills: list[Sequence] = []
        context = index = 0
        while index < len(running):  # `running` shrinks from its end when one must make room
            sequence = running[index]
            start = sequence.computed
            known = sequence.known
            if len(known) - start > 1:
                prefills.append(sequence)
            elif start < sequence.room or self._grow(sequence):
                assert sequence.slot is not None
                work.append(Work(sequence.slot, start, known[start:], sequence.tables, True))
                sequences.append(sequence)
                context += start + 1
            else:
                continue  # it has left `running`
            index += 1
        plan.tokens = plan.decodes = len(work)
        plan.context = context
        return prefills

    def _room(self, plan: Plan, start: int) -> int:
        """Tokens from position `start` on that the step can still take, by its budget and by its time."""
        budget = self.budget - plan.tokens
        return self.pace.chunk(plan.load, plan.decodes, start, budget) if budget else 0

    def _put(self, plan: Plan, sequence: Sequence) -> bool:
        """Plans as much of a sequence as there is room for. False: none."""
        assert sequence.slot is not None
        start = sequence.computed
        room = self._room(plan, start)
        if not room:
            return False
        tokens = sequence.known[start : start + room]
        sample = start + len(tokens) == len(sequence.known)
        plan.batch.work.append(Work(sequence.slot, start, tokens, sequence.tables, sample))
        plan.sequences.append(sequence)
        plan.tokens += len(tokens)
        plan.context += attended(start, len(tokens))
        return True

    def _let_in(self, plan: Plan, now: float) -> None:
        waiting, running = self.waiting, self.running
        seats = self.policy.seats(now, len(running), len(waiting), waiting.head.arrival)
        while waiting and self._slots:
            head = waiting.head
            if not self._room(plan, 0):
                break
            if not head.started and seats <= 0:
                break
            length = len(head.known)
            if not self._requirements.fits(length):  # it was preempted when it had just outgrown the pool
                self._news.append(self._end(head, Finish.FAILED, self._requirements.too_long(length)))
                continue
            # One block of headroom for each that runs: all can grow once more before anybody is preempted, and who
            # was preempted in this very plan does not come straight back.
            if not self.blocks.admit(head, headroom=len(running)):
                self._starved = True
                break
            waiting.remove(head)
            self._open(plan, head)
            if not head.started:
                seats -= 1
                self.policy.joined()
                self._start(plan, head)
            if not self._put(plan, head):  # its cached prefix makes its tokens dearer than those of an empty one
                break

    def _open(self, plan: Plan, sequence: Sequence) -> None:
        """Gives it a slot and its place, by age, among the running."""
        sequence.slot = self._slots.pop()
        index = len(self.running)
        while index and self.running[index - 1].order > sequence.order:
            index -= 1
        self.running.insert(index, sequence)
        opening = Opening(sequence.slot, sequence.sampling, sequence.known[:], sequence.prompt_length)
        plan.batch.openings.append(opening)

    def _start(self, plan: Plan, sequence: Sequence) -> None:
        sequence.started = True
        sequence.cached_tokens = sequence.computed
        self.counters.cached_tokens += sequence.computed
        plan.started.append(sequence)
        plan.emissions.append(Emission(id=sequence.id, started=True, cached_tokens=sequence.cached_tokens))

    def _grow(self, sequence: Sequence) -> bool:
        """Gets the sequence a block, from the youngest if need be. False: it is the one that had to leave."""
        length = len(sequence.known)
        if not self._requirements.fits(length):
            self._news.append(self._end(sequence, Finish.FAILED, self._requirements.too_long(length)))
            self._sweep()
            return False
        while not self.blocks.grow(sequence, length):
            victim = self.running[-1]
            self._preempt(victim)
            if victim is sequence:
                return False
        return True

    def _preempt(self, victim: Sequence) -> None:
        """Takes blocks and slot; the known tokens stay, and computing them again gives the same ones (decision 2)."""
        assert victim.slot is not None
        self.counters.preemptions += 1
        self._slots.append(victim.slot)
        self.running.remove(victim)
        self.blocks.release(victim)
        self.waiting.add(victim)

    def _expire(self, now: float) -> None:
        due = False
        for request in self._deadlines.pop_due(now):
            sequence = self._live.get(request)
            if sequence is None:
                continue
            if sequence.deadline is not None and sequence.deadline <= now:
                where = "while it ran" if sequence.started else "in the queue"
                self._news.append(self._end(sequence, Finish.EXPIRED, f"the request's deadline passed {where}"))
                due = True
            elif not sequence.started and sequence.queue_end is not None and sequence.queue_end <= now:
                self._news.append(self._outwait(sequence))
        if due:
            self._sweep()

    def _outwait(self, sequence: Sequence) -> Emission:
        """It waited as long as is promised; whoever comes back after as long again finds a shorter queue or is told so
        at once."""
        detail = f"no step could be given to it within {self._queue_s:g} s (promise.queue_s)"
        ended = self._end(sequence, Finish.REFUSED, detail)
        return Emission(id=ended.id, finish=ended.finish, detail=detail, retry_after_s=self._queue_s)

    # -- parts of commit -------------------------------------------------------------------------------------------

    def _take(self, sequence: Sequence, sampled: Sampled) -> Emission:
        if sampled.error is not None:
            return self._end(sequence, Finish.FAILED, sampled.error)
        finish = sequence.append(sampled.token)
        if finish is not None:
            self._end(sequence, finish, "")
        logprobs = None if sampled.logprobs is None else [sampled.logprobs]
        return Emission(id=sequence.id, tokens=[sampled.token], logprobs=logprobs, finish=finish)

    def _end(self, sequence: Sequence, finish: Finish, detail: str) -> Emission:
        """Marks it; a running one keeps slot and blocks until the sweep, which a computing step holds off."""
        sequence.finish = finish
        del self._live[sequence.id]
        self.counters.finished += 1
        if not sequence.running:
            self.waiting.remove(sequence)
        return Emission(id=sequence.id, finish=finish, detail=detail)

    def _sweep(self) -> None:
        """Frees what ended sequences hold."""
        for sequence in self.running:
            if sequence.finish is not None and sequence.slot is not None:
                self._slots.append(sequence.slot)
                self.blocks.release(sequence)
        self.running[:] = [s for s in self.running if s.slot is not None]
