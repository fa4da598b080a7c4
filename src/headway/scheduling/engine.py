"""The loop: plan → submit → publish → collect → commit, forever."""

from array import array
from collections import deque
from collections.abc import Callable, Sequence

import msgspec

from headway.core.clock import Clock
from headway.core.config import Settings
from headway.core.errors import ModelError
from headway.core.events import Emission, Finish, Load, Outlook, StepMessage, Tuning
from headway.core.lane import Lane
from headway.core.request import Cancel, EngineRequest, ToEngine, worker_of
from headway.core.runner import Batch, Opening, Runner, StepResult, Work
from headway.core.sampling import Sampling
from headway.scheduling.admission import Admission
from headway.scheduling.cost_model import CostModel
from headway.scheduling.outlook import Newcomer, Standing, first_token_s, look, queue_wait_s, wait_needed
from headway.scheduling.plan import Plan
from headway.scheduling.scheduler import Scheduler
from headway.scheduling.shares import shares_of
from headway.scheduling.step_record import StepRecord
from headway.scheduling.survey import Survey, survey_of
from headway.scheduling.tuning import Tuner
from headway.scheduling.wards import Wards

Publish = Callable[[int, StepMessage], None]  # worker's index, what it gets
OnStep = Callable[[StepRecord], None]
OnBegin = Callable[[Plan, float], None]
Suspects = Sequence[Sequence[tuple[int, int]]]

# The gate has already let it in from a load a step older: the exact check turns away only what is clearly too late.
LENIENCE_S = 0.1
LOAD_S = 0.1  # a load is told again after so long at the latest; while streams merely go on it hardly changes


class Engine:
    """Drives one runner. Knows no transport: messages come in by `submit`, and go out by calling `publish`.

    One thread calls `step`; `submit` may come from any, also while a step computes (it takes effect at the boundary).

    A step's tokens are published right after the next step was submitted, not before it is planned. Measured at 64
    sequences: planning 15 us (110 when all need a block), publishing 17 us and the socket's share. This order hides
    publishing behind the compute threads, which would idle through it otherwise, and the tokens leave one plan()
    later. If nothing is left running there is no next step to wait for, and they go at once.
    """

    def __init__(
        self,
        runner: Runner,
        settings: Settings,
        clock: Clock,
        epoch: int,
        publish: Publish,
        on_step: OnStep | None = None,
        costs: CostModel | None = None,
        on_begin: OnBegin | None = None,
        suspects: Suspects = (),
    ) -> None:
        """`costs`: what an earlier life learned of this runner on this machine. `on_begin` hears of each step that is
        about to be computed, and how many seconds that will take, as far as is known. `suspects`: see `Wards`."""
        self.costs = costs or CostModel()
        self.scheduler = Scheduler(runner.info, settings, self.costs, Wards(suspects))
        self._runner = runner
        self._clock = clock
        self._epoch = epoch
        self._publish = publish
        self._on_step = on_step
        self._on_begin = on_begin
        self._settings = settings
        self.tuner = Tuner(
            settings.tuning, settings.promise, self.scheduler.policy, self.scheduler.pace, self.scheduler.capacity
        )
        self._admission = Admission(settings.queue)
        self._inbox: deque[ToEngine] = deque()
        self._outbox: list[Emission] = []
        self._told: dict[int, float] = {}  # workers that know the load as it is but for streams' tokens -> since when
        self._ready = False

    @property
    def has_work(self) -> bool:
        """Whether a request is live or something is yet to be received or published."""
        return bool(self._inbox or self._outbox) or self.scheduler.has_work

    def submit(self, message: ToEngine) -> None:
        """Takes a request or a cancel; the next step acts on it."""
        self._inbox.append(message)

    def abandon(self, worker: int) -> None:
        """Cancels all that an API worker has asked for: it was started anew, and nobody reads it any more."""
        for id in self.scheduler.live_ids():
            if worker_of(id) == worker:
                self._inbox.append(Cancel(id=id, epoch=self._epoch, reason="its API worker has ended"))

    def next_wake(self, now: float) -> float | None:
        """When to call `step` next: `now` if there is something to do, None if only a message can bring it."""
        return now if self._inbox or self._outbox else self.scheduler.next_ask(now)

    def reconfigure(self, settings: Settings) -> None:
        """Changes promise, limits, windows and lanes from the next step on; nothing live is dropped."""
        self._settings = settings
        self._admission.settings = settings.queue
        self.scheduler.reconfigure(settings)
        self.tuner.reconfigure(settings.tuning, settings.promise, self.scheduler.policy)

    def load(self) -> Load:
        """A snapshot; between steps it is exact."""
        scheduler = self.scheduler
        counters = scheduler.counters
        survey = survey_of(scheduler)
        demand = survey.demand(Lane.FLEX, scheduler.room)
        outlook = self._outlook(survey)
        tuner = self.tuner
        return Load(
            time=self._clock.now(),
            ready=self._ready,
            waiting=demand.waiting,
            waiting_tokens=survey.backlog,
            running=len(scheduler.running),
            free_blocks=scheduler.blocks.available,
            total_blocks=scheduler.blocks.total,
            predicted_wait_s=queue_wait_s(outlook, Lane.FLEX, demand.ends_needed),
            steps=counters.steps,
            computed_tokens=counters.computed_tokens,
            cached_tokens=counters.cached_tokens,
            preemptions=counters.preemptions,
            recomputed_tokens=counters.recomputed_tokens,
            lanes=survey.lanes,
            outlook=outlook,
            tuning=Tuning(
                batch_limit=tuner.limit,
                margin=scheduler.pace.margin,
                chunk_tokens=scheduler.pace.typical_chunk(survey.decodes, scheduler.budget),
                ups=tuner.ups,
                downs=tuner.downs,
            ),
            prediction_error=self.costs.median_error,
        )

    def _outlook(self, survey: Survey) -> Outlook:
        settings, scheduler = self._settings, self.scheduler
        standing = Standing(
            streams=survey.streams,
            capacity=min(scheduler.capacity, self.tuner.limit),
            context=survey.context,
            short=survey.short,
            long=survey.long,
            long_keys=survey.long_keys,
            ends_per_s=self._admission.ends_per_s,
            kv_seats=scheduler.planner.kv.seats(),
            prompt=self._admission.usual_prompt,
            flex_s=scheduler.pace.flex_step_s if survey.lanes[Lane.FLEX].running else 0.0,
            caution=self._admission.caution,
        )
        share = settings.lanes.long_prompt_share
        outlook = look(self.costs, settings.promise, scheduler.budget, scheduler.pace.margin, share, standing)
        shares = shares_of(scheduler.ledger, scheduler.waiting, survey.begun, outlook, self._clock.now())
        return msgspec.structs.replace(outlook, shares=shares) if shares else outlook

    def warm_up(self) -> None:
        """Has the model make one token, outside of any request; only then does the load say ready."""
        if self.scheduler.running:
            raise RuntimeError("warm up before the first step: it uses slot 0 and the first blocks")
        tokens = array("I", [0])
        tables = tuple(array("I", [group]) for group in range(self._runner.info.layer_groups))
        opening = Opening(0, Sampling(max_tokens=1, temperature=0.0), tokens, 1)
        self._runner.submit(Batch([Work(0, 0, tokens, tables, True)], [opening]))
        sampled = self._runner.collect().sampled[0]
        if sampled is None or sampled.error is not None:
            raise ModelError(f"the model made no token: {sampled.error if sampled else 'nothing was sampled'}")
        self._ready = True

    def step(self) -> bool:
        """Receives, plans, computes and commits one step. False: there was nothing to do."""
        clock = self._clock
        begin = clock.now()
        self._receive()
        plan = self.scheduler.plan(begin)
        if not plan.batch.work:
            self._outbox += plan.emissions
            return self._send()
        planned = clock.now()
        if self._on_begin is not None:
            self._on_begin(plan, self.costs.predict(plan.load))
        self._runner.submit(plan.batch)
        submitted = clock.now()
        self._outbox += plan.emissions
        if plan.tokens != plan.decodes:
            self._told.clear()
        self._send()
        published = clock.now()
        result, interrupt = self._collect()
        collected = clock.now()
        finished = self.scheduler.counters.finished
        self._outbox += self.scheduler.commit(plan, result)
        self._ready = True
        committed = clock.now()
        if committed > begin:
            self.costs.observe(plan.load, committed - begin)
            self.tuner.observe(begin, committed - begin, plan.decodes, plan.tokens - plan.decodes)
        for sequence in self.scheduler.take_first():
            self._admission.saw_first_token(sequence.first_s, committed - sequence.added)
            sequence.first_s = 0.0
        self._admission.saw_ends(self.scheduler.counters.finished - finished, committed - begin)
        if not self.scheduler.running:
            self._send()
        if self._on_step is not None:
            times = (begin, planned - begin, published - submitted, collected - planned)
            self._on_step(self._record(plan, times, result.compute_s, committed - collected))
        if interrupt is not None:
            raise interrupt
        return True

    def _collect(self) -> tuple[StepResult, KeyboardInterrupt | None]:
        """Ctrl-C while waiting is raised once the step is committed: a plan left in flight would end the engine."""
        try:
            return self._runner.collect(), None
        except KeyboardInterrupt as interrupt:
            return self._runner.collect(), interrupt

    def _receive(self) -> None:
        inbox = self._inbox
        while inbox:
            message = inbox.popleft()
            self._told.clear()
            if message.epoch != self._epoch:
                continue
            if isinstance(message, Cancel):
                self.scheduler.cancel(message.id, message.reason)
                continue
            problem, retry, first_s = self._problem(message)
            if problem is None or self.scheduler.is_live(message.id):
                self.scheduler.add(message, self._clock.now(), first_s)
                continue
            refusal = Emission(id=message.id, finish=Finish.REFUSED, detail=problem, retry_after_s=retry)
            self._outbox.append(refusal)

    def _problem(self, request: EngineRequest) -> tuple[str | None, float, float]:
        """Why it is not taken now (None: it is), when to come back, and when its first token is expected."""
        scheduler, now = self.scheduler, self._clock.now()
        if request.past is not None or (request.leader is not None and scheduler.is_live(request.leader)):
            return None, 0.0, 0.0  # let in before, or with it
        survey = survey_of(scheduler)
        tokens = len(request.prompt) // 4
        self._admission.saw_prompt(tokens)
        demand = survey.demand(request.lane, scheduler.room)
        problem = self._admission.problem(demand, tokens)
        if problem is not None:
            return problem, queue_wait_s(self._outlook(survey), request.lane, demand.ends_needed), 0.0
        promise = self._settings.promise
        if not promise.ttft_ms and not promise.queue_s and request.deadline is None:
            return None, 0.0, 0.0
        if request.lane is not Lane.FLEX:
            scheduler.ledger.note(request.lane, request.tenant, request.weight, now, tokens)
        newcomer = Newcomer(
            tokens,
            now - request.arrival,
            lane=request.lane,
            tenant=request.tenant,
            long=tokens > self._settings.lanes.long_prompt_tokens,
            left_s=None if request.deadline is None else request.deadline - now,
            booked=request.booked,
        )
        outlook = self._outlook(survey)
        wait = wait_needed(outlook, promise, newcomer)
        if wait > LENIENCE_S:
            return "the promise could not be kept for it now", wait, 0.0
        return None, 0.0, first_token_s(outlook, newcomer)

    def _send(self) -> bool:
        """Publishes the outbox, one message to each worker that has something in it."""
        if not self._outbox:
            return False
        emissions, self._outbox = self._outbox, []
        by_worker: dict[int, list[Emission]] = {}
        for emission in emissions:
            by_worker.setdefault(worker_of(emission.id), []).append(emission)
            if emission.started or emission.finish is not None:
                self._told.clear()
        now, load = self._clock.now(), None
        for worker, share in by_worker.items():
            news = now - self._told.get(worker, -LOAD_S) >= LOAD_S
            if news:
                load = load or self.load()
                self._told[worker] = now
            self._publish(worker, StepMessage(epoch=self._epoch, emissions=share, load=load if news else None))
        return True

    def _record(
        self, plan: Plan, times: tuple[float, float, float, float], compute_s: float, commit_s: float
    ) -> StepRecord:
        begin, plan_s, publish_s, execute_s = times
        return StepRecord(
            step=self.scheduler.counters.steps,
            time=begin,
            plan_s=plan_s,
            publish_s=publish_s,
            execute_s=execute_s,
            compute_s=compute_s,
            commit_s=commit_s,
            tokens=plan.tokens,
            sequences=len(plan.sequences),
            waiting=len(self.scheduler.waiting),
            running=len(self.scheduler.running),
        )
