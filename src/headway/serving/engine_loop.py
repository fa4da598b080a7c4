"""The engine in its process: loads the model, then steps forever. Owns the ROUTER socket and nothing that has text."""

import gc
import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from headway.core.clock import Clock, MonotonicClock
from headway.core.config import Settings
from headway.core.events import Load, StepMessage
from headway.core.request import Cancel, EngineRequest, ToEngine, serial_of, worker_of
from headway.core.runner import Runner
from headway.scheduling.cost_model import ENOUGH
from headway.scheduling.engine import Engine
from headway.scheduling.plan import Plan
from headway.serving.ipc import EngineSocket, Hello, Outbound, Reconfigure, Step, Welcome, WorkerStalled
from headway.serving.learned_costs import costs_path, read_costs, write_costs
from headway.serving.settings_hub import SettingsHub
from headway.serving.step_board import StepBoard

log = logging.getLogger(__name__)

HEARTBEAT_S = 0.25
PATIENCE = 20.0  # times its predicted time, and server.hang_s, that a step may take before it counts as hung
START_POLL_S = 0.01  # while the model is being loaded
TIDY_S = 10.0  # between two collections of garbage while idle
KEEP_S = 60.0  # between two times that the learned costs are written
LoadRunner = Callable[[], Runner]


class EngineLoop:
    """Joins one engine to its socket. `run` returns after `stop`, which any thread or signal handler may call."""

    def __init__(
        self,
        socket: EngineSocket,
        settings: Settings,
        epoch: int,
        clock: Clock | None = None,
        board: StepBoard | None = None,
        on_settings: Callable[[str], None] = lambda settings: None,
        suspects: Sequence[Sequence[tuple[int, int]]] = (),
    ) -> None:
        """`board`: where the parent sees what it does. `on_settings` hears the live settings, when they change.
        `suspects`: as `Wards` takes them."""
        self._suspects = suspects
        self._socket = socket
        self._board = board
        self._settings = settings
        self._epoch = epoch
        self._clock = clock or MonotonicClock()
        self._seen: dict[int, int] = {}  # workers that have said hello -> serial of their newest request
        self._lost: set[int] = set()  # workers that stopped reading
        self._early: list[tuple[int, ToEngine | Reconfigure]] = []  # came before the model was loaded
        self._engine: Engine | None = None
        self._runner: Runner | None = None
        self._costs_path: Path | None = None
        self._beat = 0.0
        self._tidied = 0.0
        self._kept = -KEEP_S
        self._stopping = False
        self._lives: dict[int, int] = {}  # of workers: how often each was started
        self._hub = SettingsHub(settings, epoch, self._send, on_settings)
        self.command = self._hub.command  # takes a line from the parent; any thread may call

    def stop(self) -> None:
        self._stopping = True

    def close(self) -> None:
        self._socket.close()

    def run(self, load_runner: LoadRunner, on_ready: Callable[[], None] = lambda: None) -> None:
        """Raises what loading raises (ModelError, ...)."""
        try:
            if not self._start(load_runner):
                return
            on_ready()
            assert self._engine is not None
            while not self._stopping:
                self._turn(self._engine)
        finally:
            if self._runner is not None:
                self._runner.close()
            if self._engine is not None and self._costs_path is not None:
                write_costs(self._costs_path, self._engine.costs)
            self._engine = self._runner = None  # native objects must be gone before the interpreter is

    def _start(self, load_runner: LoadRunner) -> bool:
        """Loads in a thread, so that the loading is visible to the workers. False: stopped meanwhile."""
        failure: list[BaseException] = []

        def load() -> None:
            try:
                self._runner = load_runner()
                self._costs_path = costs_path(self._runner.info.fingerprint, self._settings.engine.threads)
                costs = read_costs(self._costs_path)
                engine = Engine(
                    self._runner,
                    self._settings,
                    self._clock,
                    self._epoch,
                    self._publish,
                    costs=costs,
                    on_begin=self._begin if self._board is not None else None,
                    suspects=self._suspects,
                )
                engine.warm_up()
                self._engine = engine
            except BaseException as error:  # raised again below
                failure.append(error)

        loader = threading.Thread(target=load, name="load", daemon=True)
        loader.start()
        while loader.is_alive() and not self._stopping:
            self._socket.poll(START_POLL_S)
            self._receive()
            self._heartbeat()
        if self._stopping:
            return False
        if failure:
            raise failure[0]
        self._report()
        for worker in self._seen:
            self._greet(worker)
        for worker, message in self._early:
            self._take(worker, message)
        self._early.clear()
        self._beat = 0.0
        return True

    def _report(self) -> None:
        """Says what runs: kernels and KV type are in the fingerprint."""
        assert self._engine is not None and self._runner is not None
        scheduler = self._engine.scheduler
        log.info(
            "%s on %d threads; context %d, %d sequences, KV cache for %d tokens",
            self._runner.info.fingerprint,
            self._settings.engine.threads,
            min(scheduler.context, scheduler.blocks.capacity),
            scheduler.capacity,
            scheduler.blocks.capacity,
        )

    def _begin(self, plan: Plan, predicted_s: float) -> None:
        """A step is about to be computed."""
        assert self._board is not None
        work = plan.batch.work
        members = ((s.id, w.start, len(w.tokens)) for s, w in zip(plan.sequences, work, strict=True))
        self._board.begin(members, plan.ward, self._watched())
        assert self._engine is not None
        server = self._settings.server
        # Of a model's very first steps nobody knows how long they take.
        allowed = server.hang_s + PATIENCE * predicted_s if self._engine.costs.known else server.start_s
        self._board.beat(self._clock.now(), allowed)

    def _watched(self) -> int:
        return self._engine.scheduler.wards.count if self._engine is not None else 0

    def _turn(self, engine: Engine) -> None:
        if self._board is not None:
            self._board.beat(self._clock.now(), self._settings.server.hang_s)
        self._receive()
        self._hub.poll(engine.reconfigure)
        steps = engine.scheduler.counters.steps
        worked = engine.step()
        if self._board is not None and engine.scheduler.counters.steps > steps:
            self._board.end()
        self._log_decisions(engine)
        self._keep_costs(engine)
        self._heartbeat()
        if worked:
            return
        now = self._clock.now()
        self._tidy(now)
        wake = engine.next_wake(now)
        due = self._beat + HEARTBEAT_S
        self._socket.poll(max(0.0, min(due, wake if wake is not None else due) - now))

    def _tidy(self, now: float) -> None:
        """Collects garbage while nobody waits for a step: with ten thousand requests live it takes tens of
        milliseconds. What a step leaves behind has no cycles, and is freed without it."""
        if now >= self._tidied + TIDY_S:
            self._tidied = now
            gc.collect(1)

    def _keep_costs(self, engine: Engine) -> None:
        """So that the next engine knows them however this one ends."""
        now = self._clock.now()
        if now >= self._kept + KEEP_S and engine.costs.observed >= ENOUGH and self._costs_path is not None:
            self._kept = now
            write_costs(self._costs_path, engine.costs)

    def _log_decisions(self, engine: Engine) -> None:
        for decision in engine.tuner.take_new():
            log.info("tuning: %s %g -> %g (%s)", decision.what, decision.old, decision.new, decision.why)

    def _receive(self) -> None:
        while (arrived := self._socket.receive()) is not None:
            worker, message = arrived
            if isinstance(message, Hello):
                self._hear(worker, message.life)
            elif message.epoch != self._epoch:
                log.info("dropped a message of epoch %d", message.epoch)
            elif self._engine is None:
                self._early.append((worker, message))
            else:
                self._take(worker, message)

    def _hear(self, worker: int, life: int) -> None:
        """A worker is there. If it was started anew, what it had asked for before is nobody's."""
        if self._lives.setdefault(worker, life) != life:
            log.info("API worker %d was started anew: its former requests are cancelled", worker)
            self._lives[worker], self._seen[worker] = life, 0
            self._lost.discard(worker)
            self._early = [entry for entry in self._early if entry[0] != worker]
            if self._engine is not None:
                self._engine.abandon(worker)
        self._seen.setdefault(worker, 0)
        self._greet(worker)

    def _take(self, worker: int, message: ToEngine | Reconfigure) -> None:
        assert self._engine is not None
        if isinstance(message, Reconfigure):
            self._hub.answer(worker, message, self._engine.reconfigure)
            return
        self._engine.submit(message)
        if isinstance(message, EngineRequest):
            self._seen[worker_of(message.id)] = serial_of(message.id)

    def _greet(self, worker: int) -> None:
        """Answers a hello, once there is a model to speak of; a heartbeat follows at the end of the turn."""
        self._beat = 0.0
        if self._engine is None or self._runner is None:
            return
        scheduler = self._engine.scheduler
        welcome = Welcome(
            epoch=self._epoch,
            fingerprint=self._runner.info.fingerprint,
            context=min(scheduler.context, scheduler.blocks.capacity),
            capacity=scheduler.capacity,
            vocab_size=self._runner.info.vocab_size,
            lost=worker in self._lost,
        )
        with suppress(WorkerStalled):  # it will say hello again
            self._socket.send(worker, welcome)
            self._lost.discard(worker)
            self._hub.greet(worker)

    def _heartbeat(self) -> None:
        """The load to everybody at least so often, whether there are steps or not."""
        now = self._clock.now()
        if now - self._beat < HEARTBEAT_S:
            return
        self._beat = now
        for worker in self._seen:
            self._send_load(worker)
        self._hub.tell(list(self._seen))

    def _send_load(self, worker: int) -> None:
        load = self._engine.load() if self._engine is not None else _not_ready(self._clock.now())
        self._publish(worker, StepMessage(epoch=self._epoch, emissions=[], load=load))

    def _send(self, worker: int, message: Outbound) -> bool:
        """For the hub."""
        if worker in self._lost:
            return False
        try:
            self._socket.send(worker, message)
        except WorkerStalled:
            return False
        return True

    def _publish(self, worker: int, message: StepMessage) -> None:
        if worker in self._lost:
            return
        try:
            self._socket.send(worker, Step(self._seen.get(worker, 0), message))
        except WorkerStalled as error:
            if message.emissions:  # a lost heartbeat matters to nobody
                self._lose(worker, message, str(error))

    def _lose(self, worker: int, message: StepMessage, why: str) -> None:
        """A step did not reach the worker, so its streams are broken: ends them, and says so at its next hello."""
        log.error("%s; its requests are cancelled", why)
        self._lost.add(worker)
        if self._engine is None:
            return
        for emission in message.emissions:
            self._engine.submit(Cancel(id=emission.id, epoch=self._epoch, reason="API worker lost"))


def _not_ready(now: float) -> Load:
    return Load(
        time=now,
        ready=False,
        waiting=0,
        waiting_tokens=0,
        running=0,
        free_blocks=0,
        total_blocks=0,
        predicted_wait_s=0.0,
    )
