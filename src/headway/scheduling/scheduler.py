"""Who computes what in the next step. plan() and commit() are the only verbs of the loop (decision 1)."""

from headway.core.config import Settings
from headway.core.events import Emission, Finish
from headway.core.lane import Lane
from headway.core.request import EngineRequest
from headway.core.runner import RunnerInfo, Sampled, StepResult, Work
from headway.scheduling.blocks import KvBlocks
from headway.scheduling.cost_model import CostModel
from headway.scheduling.deadlines import Deadlines, verdict
from headway.scheduling.ledger import OUTPUT_WEIGHT, Ledger
from headway.scheduling.pace import Pace
from headway.scheduling.plan import Counters, Plan
from headway.scheduling.planner import Planner
from headway.scheduling.policy import Policy, make_policy
from headway.scheduling.requirements import Requirements
from headway.scheduling.running import RunningSet
from headway.scheduling.sequence import Sequence
from headway.scheduling.waiting import WaitingQueue
from headway.scheduling.wards import Wards


class Scheduler:
    """Owns all live sequences. Pure: time comes in as `now`, tokens as a StepResult."""

    def __init__(self, info: RunnerInfo, settings: Settings, costs: CostModel, wards: Wards | None = None) -> None:
        self.info = info
        self.context = min(info.context, settings.engine.context or info.context)
        self.budget = min(settings.engine.max_step_tokens, info.max_batch_tokens)
        # No more running sequences than tokens in a step: then every decode gets its token in every step, and the
        # oldest prefill at least one. Neither can starve the other.
        self.capacity = min(settings.engine.max_sequences, info.slots, self.budget)
        self._promise = settings.promise
        self._batching = settings.batching
        self._long_prompt = settings.lanes.long_prompt_tokens
        self.pace = Pace(costs, settings.promise.itl_s)
        self.blocks = KvBlocks(info, settings.engine.prefix_cache)
        self.counters = Counters()
        self.ledger = Ledger()
        self.waiting = WaitingQueue(settings.lanes.aging_tokens)
        self.running = RunningSet(self.blocks, self.capacity)
        self.wards = wards if wards is not None else Wards(())
        self._requirements = Requirements(self.context, self.blocks.capacity, info.vocab_size)
        self.planner = Planner(
            self.running,
            self.waiting,
            self.wards,
            self._requirements,
            make_policy(settings.batching, self.capacity),
            self.pace,
            settings.lanes,
            self.budget,
            self.counters,
            self._fail,
        )
        self._live: dict[int, Sequence] = {}
        self._deadlines = Deadlines()
        self._ends = frozenset(info.end_ids)
        self._serial = 0
        self._now = 0.0  # when the step began
        self._news: list[Emission] = []  # for the next plan
        self._firsts: list[Sequence] = []  # that got their first token
        self._planned: Plan | None = None  # between plan and commit
        self._vain = False  # the last plan came to nothing, and nothing but time has changed since
        self._unswept = False  # somebody has ended who still holds slot and blocks

    def reconfigure(self, settings: Settings) -> None:
        """Takes what may change while it runs, for all that is live; the pace is the tuner's."""
        self._promise = settings.promise
        self._long_prompt = settings.lanes.long_prompt_tokens
        self.waiting.set_aging(settings.lanes.aging_tokens)
        self._vain = False
        changed = settings.batching != self._batching
        self._batching = settings.batching
        policy = make_policy(settings.batching, self.capacity) if changed else self.policy
        self.planner.reconfigure(settings.lanes, policy)

    @property
    def has_work(self) -> bool:
        return bool(self._live or self._news)

    @property
    def room(self) -> int:
        """How many newcomers could join without waiting for another to finish, as far as is known."""
        return 0 if self.planner.kv.starved else self.policy.room(len(self.running))

    @property
    def policy(self) -> Policy:
        return self.planner.policy

    def is_live(self, request: int) -> bool:
        return request in self._live

    def live_ids(self) -> list[int]:
        return list(self._live)

    def backlog(self) -> int:
        """Tokens to compute before every live sequence is down to one uncomputed token."""
        waiting = sum([self.waiting.tokens(lane) for lane in Lane])
        return waiting + sum([len(s.known) - s.computed - 1 for s in self.running.sequences])

    def next_ask(self, now: float) -> float | None:
        """When plan() may have something to do; None: not before an event (a request, a cancel)."""
        if self._news or self.running:
            return now
        if not self.waiting:
            return None
        head = self.waiting.oldest
        times = [now] if (head.started or self.wards.count) and not self._vain else []
        asked = self.policy.next_ask(0, len(self.waiting), head.arrival)
        times += [] if asked is None else [asked]
        times += [] if self._deadlines.next is None else [self._deadlines.next]
        return max(now, min(times)) if times else None

    def add(self, request: EngineRequest, now: float = 0.0, first_s: float = 0.0) -> None:
        """Queues a request, whose first token is expected in `first_s` seconds (0: not known). One that can never be
        served ends in the next plan, before it costs anything."""
        problem = self._requirements.problem(request)
        if request.id in self._live:
            problem = f"request id {request.id} is already live"
        if problem is not None:
            self._news.append(Emission(id=request.id, finish=Finish.FAILED, detail=problem))
            return
        if request.sampling.max_tokens < 1:
            self._news.append(Emission(id=request.id, started=True, finish=Finish.LENGTH))
            return
        account = self.ledger.enter(request.lane, request.tenant, request.weight, max(self._now, request.arrival))
        sequence = Sequence(request, self._serial, self.context, self._ends, account, self._long_prompt)
        self._serial += 1
        if self._promise.queue_s and request.lane is not Lane.FLEX and request.past is None:  # flex has all the time
            sequence.queue_end = request.arrival + self._promise.queue_s
        sequence.added, sequence.first_s = now, first_s
        self._live[sequence.id] = sequence
        self._vain = False
        self.wards.enter(sequence)
        leader = None if request.leader is None or sequence.ward else self._live.get(request.leader)
        if leader is not None and not sequence.started and self._computes_for(leader, sequence):
            self.waiting.follow(sequence, leader.id if leader.leader is None else leader.leader)
        else:
            self.waiting.add(sequence)
        self._deadlines.add(sequence)
        self._deadlines.compact(self._live.values(), len(self._live))

    def _computes_for(self, leader: Sequence, sequence: Sequence) -> bool:
        """Whether the prompt of `leader` is that of `sequence`, and not computed yet. Policies that run whole batches
        would have the others wait for the next one."""
        alike = leader.known == sequence.known and leader.salt == sequence.salt  # it has emitted nothing
        return alike and self.blocks.shares and self._batching.policy == "continuous"

    def cancel(self, request: int, reason: str) -> None:
        """Ends a request in any state: now, or at the commit if a step is computing it. An unknown id is fine."""
        sequence = self._live.get(request)
        if sequence is None:
            return
        self._news.append(self._end(sequence, Finish.CANCELLED, reason))
        if self._planned is None:
            self._sweep()

    def plan(self, now: float) -> Plan:
        """Makes the next step (see Planner); ends what has run out of time."""
        assert self._planned is None, "the last plan has not been committed"
        self._now = now
        self._expire(now)
        plan = self.planner.fill(now)
        plan.emissions[:0] = self._news
        self._news = []
        self._vain = not plan.batch.work
        if plan.batch.work:
            self._planned = plan
        return plan

    def commit(self, plan: Plan, result: StepResult) -> list[Emission]:
        """Takes a computed step's tokens; ends and frees those that are done."""
        assert plan is self._planned, "commit() takes the plan that is in flight"
        self._planned = None
        counters, block_size = self.counters, self.blocks.block_size
        counters.steps += 1
        counters.computed_tokens += plan.tokens
        emissions: list[Emission] = []
        now, unwatched = self._now, not self._promise.token_s
        emit = emissions.append
        for sequence, work, sampled in zip(plan.sequences, plan.batch.work, result.sampled, strict=True):
            known = sequence.known
            length = len(known)
            if (
                sampled is not None
                and work.start + 1 == length < sequence.steady
                and sampled.token not in sequence.ends
                and sampled.logprobs is None
                and sampled.error is None
                and not sampled.forced
                and (unwatched or sequence.token_end is not None)
            ):  # a stream's next token, as nearly always: what the two calls below would do
                sequence.computed = sequence.peak = length
                account = sequence.account
                account.served += OUTPUT_WEIGHT / account.weight
                if not length % block_size:
                    self.blocks.commit(sequence)
                known.append(sampled.token)
                sequence.last_token = now
                emit(Emission(id=sequence.id, tokens=[sampled.token]))
            elif sequence.finish is None:
                self._advance(sequence, work, sampled)
                if sampled is not None:
                    emit(self._take(sequence, sampled))
        if self._unswept:  # of those that ended now, or by a cancel while the step computed
            self._sweep()
        return emissions

    def take_first(self) -> list[Sequence]:
        """Those that got their first token since the last call, of those with a time expected for it."""
        firsts, self._firsts = self._firsts, []
        return firsts

    def check_integrity(self) -> None:
        """Asserts every invariant that holds between steps."""
        self.blocks.check_integrity(self.running.sequences)
        self.running.check_integrity()
        for sequence in self._live.values():
            sequence.check()
        assert len(self._live) == len(self.running) + len(self.waiting)
        assert sum(a.live for a in self.ledger) == len(self._live)
        for lane in Lane:
            waiting = [s for s in self.waiting if s.lane is lane]
            assert self.waiting.count(lane) == len(waiting)
            queued = [s for s in waiting if s.leader is None and not s.ward]
            assert self.waiting.tokens(lane) == sum(len(s.known) for s in queued)
        assert all(s.leader in self._live for s in self.waiting if s.leader is not None)

    # -- parts of plan ---------------------------------------------------------------------------------------------

    def _fail(self, sequence: Sequence, detail: str) -> None:
        self._news.append(self._end(sequence, Finish.FAILED, detail))

    def _expire(self, now: float) -> None:
        for request in self._deadlines.pop_due(now):
            sequence = self._live.get(request)
            if sequence is None:
                continue
            if (last := verdict(sequence, now, self._promise)) is not None:
                assert last.finish is not None
                self._end(sequence, last.finish, last.detail)
                self._news.append(last)
            elif sequence.token_end is not None and sequence.token_end <= now:
                sequence.token_end = None
                if self._promise.token_s:
                    self._watch_tokens(sequence)
        if self._unswept:
            self._sweep()

    def _watch_tokens(self, sequence: Sequence) -> None:
        """Has its next token looked for when it would be overdue."""
        sequence.token_end = sequence.last_token + self._promise.token_s
        self._deadlines.remind(sequence.token_end, sequence)

    # -- parts of commit -------------------------------------------------------------------------------------------

    def _advance(self, sequence: Sequence, work: Work, sampled: Sampled | None) -> None:
        """Counts what was computed, and makes full blocks shareable.

        A generated token is charged when it is computed in turn, at the next step; what a preemption cost is not the
        tenant's doing. Where a draw was put off, the last token does not count: it will be computed again.
        """
        count = len(work.tokens) - (work.sample and sampled is None)
        if not count:
            return
        again = sequence.advance(count)
        if sequence.ward and sequence.computed >= sequence.ward_end:
            self.wards.leave(sequence)
        self.counters.recomputed_tokens += again
        weight = OUTPUT_WEIGHT if work.start >= sequence.prompt_length else 1.0
        sequence.account.charge(weight * (count - again))
        failed = sampled is not None and sampled.error is not None  # then nobody may share its blocks
        if sequence.computed - sequence.registered * self.blocks.block_size >= self.blocks.block_size and not failed:
            self.blocks.commit(sequence)

    def _take(self, sequence: Sequence, sampled: Sampled) -> Emission:
        if sampled.error is not None:
            return self._end(sequence, Finish.FAILED, sampled.error)
        tokens = [sampled.token]
        finish = sequence.append(sampled.token)
        if sampled.forced and finish is None:
            jumped, finish = sequence.jump(sampled.forced)
            tokens += jumped
        if sequence.ward:
            sequence.steady = 0  # until it is cleared
        sequence.last_token = self._now
        self.waiting.let_go(sequence.id, computed=True)
        if sequence.first_s:
            self._firsts.append(sequence)
        if finish is not None:
            self.planner.kv.forecast.observe(sequence.emitted)
            self._end(sequence, finish, "")
        elif sequence.token_end is None and self._promise.token_s:
            self._watch_tokens(sequence)
        if finish is None and sampled.logprobs is None:
            return Emission(id=sequence.id, tokens=tokens)
        logprobs = None if sampled.logprobs is None else [sampled.logprobs]
        return Emission(id=sequence.id, tokens=tokens, logprobs=logprobs, finish=finish)

    def _end(self, sequence: Sequence, finish: Finish, detail: str) -> Emission:
        """Marks it; a running one keeps slot and blocks until the sweep, which a computing step holds off."""
        sequence.finish = finish
        sequence.steady = 0
        del self._live[sequence.id]
        self._vain = False
        self.ledger.leave(sequence.account)
        self.counters.finished += 1
        if sequence.running:
            self._unswept = True
        else:
            self.waiting.remove(sequence)
        self.wards.leave(sequence)
        self.waiting.let_go(sequence.id, computed=False)
        return Emission(id=sequence.id, finish=finish, detail=detail)

    def _sweep(self) -> None:
        self._unswept = False
        self.running.sweep()
