"""The real engine on the oracle runner and a manual clock, with every invariant checked at every step."""

from array import array
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from msgspec import structs

from headway.core.clock import ManualClock
from headway.core.config import (
    BatchingSettings,
    EngineSettings,
    LaneSettings,
    PromiseSettings,
    QueueSettings,
    Settings,
    TuningSettings,
)
from headway.core.events import Emission, Finish, Outlook, StepMessage
from headway.core.lane import Lane
from headway.core.request import Cancel, EngineRequest, Past, worker_of
from headway.core.runner import Batch, RunnerInfo, StepResult
from headway.core.sampling import Sampling
from headway.model.fake_runner import FakeRunner, Vocabulary, default_info
from headway.scheduling.engine import Engine, Suspects
from headway.scheduling.plan import Plan
from headway.scheduling.sequence import Sequence
from headway.scheduling.step_record import StepRecord

EPOCH = 7


def make_request(
    serial: int,
    prompt: list[int],
    *,
    arrival: float = 0.0,
    deadline: float | None = None,
    salt: bytes = b"",
    epoch: int = EPOCH,
    lane: Lane = Lane.DEFAULT,
    tenant: str = "",
    weight: float = 1.0,
    truncate: bool = False,
    **sampling: Any,
) -> EngineRequest:
    chosen = Sampling(**({"max_tokens": 8, "seed": serial} | sampling))
    return EngineRequest(
        id=serial,
        epoch=epoch,
        prompt=array("I", prompt).tobytes(),
        sampling=chosen,
        arrival=arrival,
        deadline=deadline,
        truncate=truncate,
        lane=lane,
        tenant=tenant,
        weight=weight,
        salt=salt,
    )


def make_settings(
    *,
    step_tokens: int = 64,
    sequences: int = 16,
    prefix_cache: bool = True,
    policy: str = "continuous",
    max_batch: int = 4,
    queue: QueueSettings | None = None,
    promise: PromiseSettings | None = None,
    lanes: LaneSettings | None = None,
    tuning: TuningSettings | None = None,
) -> Settings:
    return Settings(
        engine=EngineSettings(max_sequences=sequences, max_step_tokens=step_tokens, prefix_cache=prefix_cache),
        batching=BatchingSettings(policy=policy, max_batch=max_batch, window_ms=5.0, max_wait_ms=50.0),
        queue=queue or QueueSettings(max_requests=100_000, max_tokens=100_000_000),
        promise=promise or PromiseSettings(),
        lanes=lanes or LaneSettings(),
        tuning=tuning or TuningSettings(),
    )


def make_outlook(**changes: Any) -> Outlook:
    """Five streams, one free seat, nothing before a newcomer."""
    fields = {
        "streams": 5,
        "seats": 1,
        "last_seats": 4,
        "waits_s": [0.0, 0.0, 0.0],
        "long_waits_s": [0.0, 0.0, 0.0],
        "token_s": 1e-3,
        "key_s": 0.0,
        "caution": 1.05,
        "slow": 1.0,
        "unloaded_token_s": 5e-4,
        "unloaded_key_s": 0.0,
        "unloaded_step_s": 0.01,
        "step_s": 0.04,
        "end_s": 0.2,
    }
    return Outlook(**(fields | changes))


def alone(request: EngineRequest, info: RunnerInfo, vocabulary: Vocabulary) -> tuple[list[int], Finish]:
    """What the request gets when nobody else exists: no engine, no blocks, no chunks."""
    known = array("I")
    known.frombytes(request.prompt)
    prompt_length, sampling = len(known), request.sampling
    ends = set(sampling.stop_token_ids) | (set() if sampling.ignore_eos else set(info.end_ids))
    while True:
        known.append(vocabulary.next_token(known, sampling, prompt_length))
        emitted = list(known[prompt_length:])
        if emitted[-1] in ends and len(emitted) > sampling.min_tokens:
            return emitted, Finish.STOP
        if len(emitted) == sampling.max_tokens or len(known) == info.context:
            return emitted, Finish.LENGTH


@dataclass
class Story:
    """What one request was sent."""

    tokens: list[int] = field(default_factory=list)
    emissions: list[Emission] = field(default_factory=list)
    finish: Finish | None = None


class WatchedRunner(FakeRunner):
    """Remembers every batch, and can act while one computes."""

    plans: list[tuple[object, ...]]
    during: Callable[[], None] | None = None

    def submit(self, batch: Batch) -> None:
        if not hasattr(self, "plans"):
            self.plans = []
        works = [(w.slot, w.start, w.tokens.tobytes(), tuple(t.tobytes() for t in w.tables)) for w in batch.work]
        self.plans.append((tuple(works), tuple(o.slot for o in batch.openings)))
        super().submit(batch)

    def collect(self) -> StepResult:
        if self.during is not None:
            self.during()
        return super().collect()


class Rig:
    """Drives the engine step by step."""

    def __init__(self, info: RunnerInfo | None = None, settings: Settings | None = None, **runner: Any) -> None:
        self.info = info or default_info()
        self.settings = settings or make_settings()
        self.clock = ManualClock()
        step_time = runner.pop("step_time", lambda batch: 0.001 + 0.0001 * batch.token_count)
        self._runner_options = {"clock": self.clock, "step_time": step_time, **runner}
        self.records: list[StepRecord] = []
        self.on_begin: Callable[[Plan], None] = lambda plan: None
        self._start()
        self.requests: dict[int, EngineRequest] = {}
        self.stories: dict[int, Story] = {}
        self.messages: list[tuple[int, StepMessage]] = []

    def _start(self, suspects: Suspects = ()) -> None:
        self.runner = WatchedRunner(self.info, **self._runner_options)
        self.runner.plans = []
        self.engine = Engine(
            self.runner,
            self.settings,
            self.clock,
            EPOCH,
            self._publish,
            self.records.append,
            on_begin=lambda plan, predicted_s: self.on_begin(plan),
            suspects=suspects,
        )
        self.scheduler = self.engine.scheduler

    def kill(self, suspects: Suspects = ()) -> None:
        """The engine is gone with all that it had not published; another gets what the readers' side knows."""
        self._start(suspects)
        for id, story in self.stories.items():
            if story.finish is None:
                past = Past(array("I", story.tokens).tobytes(), any(e.started for e in story.emissions))
                self.engine.submit(structs.replace(self.requests[id], past=past))

    def submit(self, *requests: EngineRequest) -> None:
        for request in requests:
            self.requests[request.id] = request
            self.stories[request.id] = Story()
            self.engine.submit(request)

    def cancel(self, request: int, reason: str = "disconnect") -> None:
        self.engine.submit(Cancel(id=request, epoch=EPOCH, reason=reason))

    def expect_short_answers(self) -> None:
        """Has the engine believe that answers are one token long: it lets in too many, and some must leave."""
        for _ in range(256):
            self.scheduler.planner.kv.forecast.observe(1)

    def step(self) -> bool:
        """One step, then everything that must hold after it."""
        scheduler, batches = self.scheduler, len(self.runner.plans)
        unstarted = {s.id: s for s in scheduler.waiting if not s.started}
        queued = {s.id for s in unstarted.values() if s.leader is None and not s.ward}
        done = self.engine.step()
        computed = len(self.runner.plans) > batches
        assert computed or not scheduler.running, "runnable sequences and an empty plan"
        if scheduler.waiting and not computed:
            assert self.settings.batching.policy != "continuous", "waiting sequences, nothing runs, and an empty plan"
        if computed:
            works = self.runner.plans[-1][0]
            assert len(works) <= scheduler.capacity  # type: ignore[arg-type]
            assert self.records[-1].tokens <= min(self.settings.engine.max_step_tokens, self.info.max_batch_tokens)
        self._check_order(unstarted, queued)
        scheduler.check_integrity()
        if not scheduler.running:
            assert scheduler.blocks.available == scheduler.blocks.total, "an idle engine references blocks"
        return done

    def run(self, limit: int = 100_000) -> None:
        """Steps, sleeping as the engine says, until nothing is left."""
        spun = 0  # steps in a row that did nothing, at one moment
        for _ in range(limit):
            if not self.engine.has_work:
                return
            now = self.clock.now()
            wake = self.engine.next_wake(now)
            assert wake is not None, "work, but nothing to wait for"
            self.clock.advance(max(0.0, wake - now))
            spun = 0 if self.step() or wake > now else spun + 1
            assert spun < 3, "it wakes at once, again and again, to do nothing"
        raise AssertionError("the engine does not come to an end")

    def check_stories(self) -> None:
        """Every request ended once, with the very tokens it would have got alone."""
        for request, story in self.stories.items():
            assert story.finish is not None, f"request {request} has no terminal event"
            self.check_tokens(request)

    def check_tokens(self, request: int) -> None:
        story = self.stories[request]
        tokens, finish = alone(self.requests[request], self.info, self.runner.vocabulary)
        cut = self.requests[request].truncate and story.emissions[-1].detail
        if story.finish in (Finish.STOP, Finish.LENGTH) and not cut:
            assert (story.tokens, story.finish) == (tokens, finish), request
        else:
            assert story.tokens == tokens[: len(story.tokens)], request

    def _publish(self, worker: int, message: StepMessage) -> None:
        assert message.epoch == EPOCH and message.emissions
        self.messages.append((worker, message))
        for emission in message.emissions:
            assert worker_of(emission.id) == worker
            story = self.stories[emission.id]
            assert story.finish is None, f"an event after the terminal one: {emission}"
            assert emission.started == (not story.emissions) or emission.finish is not None, "started once, first"
            story.emissions.append(emission)
            story.tokens += emission.tokens
            story.finish = emission.finish

    def _check_order(self, unstarted: dict[int, Sequence], queued: set[int]) -> None:
        """First come, first served within a tenant, lane and kind of prompt: nobody of them who waited before this step
        was overtaken in it. Those whose prompt another computes are in no queue while it does."""
        left, started = defaultdict(list), defaultdict(list)
        for s in self.scheduler.waiting:
            if not s.started and s.id in queued:
                left[s.lane, s.account.tenant, s.long].append(s.order)
        for s in unstarted.values():
            if s.started and s.finish is None and s.id in queued:
                started[s.lane, s.account.tenant, s.long].append(s.order)
        for kind in left.keys() & started.keys():
            assert max(started[kind]) < min(left[kind]), "a younger request started first"
