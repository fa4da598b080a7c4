"""An API worker's view of the engine: its live requests with what they have had, the newest load, and whether anybody
is there. An engine that dies is replaced by another, which is given all live requests: their readers see a pause."""

import asyncio
import logging
from array import array
from collections.abc import Callable

from msgspec import structs

from headway.core.breaker import Admission, CircuitBreaker
from headway.core.clock import Clock
from headway.core.errors import EngineUnavailable, HeadwayError, RequestFailed
from headway.core.events import Emission, Finish, Load
from headway.core.request import LIFE_SHIFT, LIVES, Cancel, EngineRequest, Past, request_id
from headway.serving.child import Absence
from headway.serving.emission_stream import EmissionStream
from headway.serving.ipc import Hello, Outbound, Reconfigure, Reconfigured, SettingsChanged, Step, Welcome, WorkerSocket
from headway.serving.poison import POISON, Poison, fingerprint

log = logging.getLogger(__name__)

HELLO_S = 1.0  # silence after which a worker says hello again
AWAY_S = 0.05  # while the engine is away: between two looks for a new one, and for deadlines that pass meanwhile
RESTART_S = 1.5  # that a restart is taken to last before one has been seen
# An engine that has not been heard for so long counts as hung. A step must be shorter; with the default step of 512
# tokens that holds down to 50 tokens/s of prefill.
STALE_S = 10.0
LOADING_RETRY_S = 2.0
MOST_FRUITLESS = 5  # lives of an engine in a row, in which nothing advanced, that open the breaker


class Entry:
    """The journal of one live request: with it another engine goes on from here."""

    __slots__ = ("convicted", "emitted", "fresh", "probe", "request", "started", "stream")

    def __init__(self, stream: EmissionStream, request: EngineRequest, fresh: bool, probe: Admission) -> None:
        self.stream = stream
        self.request = request
        self.fresh = fresh  # no engine has had it yet
        self.probe = probe
        self.started = False
        self.convicted = False  # no engine will have it again
        self.emitted = array("I")

    def again(self, epoch: int) -> EngineRequest:
        """For the engine of `epoch`."""
        past = None if self.fresh else Past(self.emitted.tobytes(), self.started)
        return structs.replace(self.request, epoch=epoch, past=past)


class EngineLink:
    """Owns the worker's socket. `on_load` hears the `seen` serial of each load, for the gate; `on_settings` what the
    engine says of settings; `on_replay` how many requests a new engine is given."""

    def __init__(self, address: str, worker: int, clock: Clock, stream_limit: int, life: int = 0) -> None:
        self._address = address
        self._hello = Hello(worker, life)
        self._clock = clock
        self._limit = stream_limit
        self._live: dict[int, Entry] = {}
        self._serial = life % LIVES << LIFE_SHIFT
        self._socket: WorkerSocket | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._heard = clock.now()
        self._dead: HeadwayError | None = None
        self._away: Absence | None = None  # the engine's, until there is a new one
        self._since = 0.0  # when it went
        self._restart_s = RESTART_S
        self._poison = Poison()
        self.breaker = CircuitBreaker(clock, MOST_FRUITLESS, name="engine")
        self.restarts = 0
        self.engine: Welcome | None = None  # None: not loaded yet
        self.load: Load | None = None
        self.on_replay: Callable[[int], None] = lambda requests: None
        self.on_load: Callable[[int], None] = lambda seen: None
        self.on_settings: Callable[[SettingsChanged | Reconfigured], None] = lambda message: None

    def start(self) -> None:
        """Connects; call on the event loop."""
        self._socket = WorkerSocket(self._address, self._hello.worker, self._receive)
        self._greet()

    def _greet(self) -> None:
        assert self._socket is not None
        away = self._away is not None
        if away or self.engine is None or self._clock.now() - self._heard >= HELLO_S:
            self._socket.send(self._hello)
        if away:
            self._expire()
        self._timer = asyncio.get_running_loop().call_later(AWAY_S if away else HELLO_S, self._greet)

    @property
    def live(self) -> int:
        """Requests given to the engine whose end has not been read or asked for."""
        return len(self._live)

    def now(self) -> float:
        return self._clock.now()

    def trouble(self) -> str | None:
        """Why the engine does not work now, or None."""
        if self._dead is not None:
            return self._dead.message
        if self._away is not None:
            return f"the engine is being restarted ({self._away.why})"
        if self.load is None or self.engine is None or not self.load.ready:
            return "the model is still loading"
        age = self._clock.now() - self.load.time
        if age > STALE_S:
            return f"the engine has given no sign of life for {age:.0f} s"
        return None

    def refusal(self) -> EngineUnavailable | None:
        """Why nothing may be opened now, or None. While the engine is away for a moment, requests wait for it."""
        if self.breaker.state == "open":
            why = self._away.why if self._away is not None else "it has failed again and again"
            return EngineUnavailable(f"the engine does not work ({why})", retry_after_s=self.breaker.retry_after)
        if self._away is not None and self.engine is not None and self._dead is None:
            return None
        trouble = self.trouble()
        return None if trouble is None else EngineUnavailable(trouble, retry_after_s=LOADING_RETRY_S)

    @property
    def absence_s(self) -> float:
        """Seconds until a restarted engine is there, as far as is known; 0: it is here."""
        return max(0.0, self._since + self._restart_s - self._clock.now()) if self._away is not None else 0.0

    def next_serial(self) -> int:
        self._serial += 1
        return self._serial

    def open(self, serial: int, build: Callable[[int, int], EngineRequest]) -> EmissionStream:
        """Sends `build(id, epoch)` to the engine, or keeps it for the next one. Raises EngineUnavailable."""
        if self._dead is not None:
            raise self._dead
        if self._socket is None or self.engine is None:
            raise EngineUnavailable("the model is still loading")
        id = request_id(self._hello.worker, serial)
        request = build(id, self.engine.epoch)
        if self._poison.holds(request, self._clock.now()):
            raise RequestFailed("engines have died of the same request a short while ago", code=POISON)
        probe = self.breaker.admit()
        if probe is None:
            raise EngineUnavailable("the engine does not work", retry_after_s=self.breaker.retry_after)
        stream = EmissionStream(id, self._limit, lambda reason: self._cancel(id, reason))
        entry = Entry(stream, request, self._away is not None, probe)
        if self._away is None and not self._socket.send(entry.request):
            probe.abandoned()
            raise EngineUnavailable("the engine does not read its messages")
        self._live[id] = entry
        return stream

    def reconfigure(self, token: int, changes: str) -> None:
        """Asks the engine for other settings. Raises EngineUnavailable."""
        trouble = self.trouble()
        if trouble is not None or self._socket is None or self.engine is None:
            raise EngineUnavailable(trouble or "the model is still loading")
        if not self._socket.send(Reconfigure(epoch=self.engine.epoch, token=token, changes=changes)):
            raise EngineUnavailable("the engine does not read its messages")

    def _cancel(self, id: int, reason: str) -> None:
        entry = self._live.pop(id, None)
        if entry is not None:
            entry.probe.abandoned()
        if self._socket is not None and self._away is None and self.engine is not None:
            self._socket.send(Cancel(id=id, epoch=self.engine.epoch, reason=reason))

    def _receive(self, message: Outbound) -> None:
        self._heard = self._clock.now()
        if isinstance(message, Welcome):
            self._welcome(message)
        elif isinstance(message, SettingsChanged | Reconfigured):
            self.on_settings(message)
        elif self.engine is None or message.message.epoch == self.engine.epoch:
            self._step(message)

    def _step(self, step: Step) -> None:
        load = step.message.load
        if load is not None:
            self.load = load
        live = self._live
        for emission in step.message.emissions:
            entry = live.get(emission.id)
            if entry is None:
                continue  # cancelled meanwhile; the engine's last words on it
            if not entry.emitted and emission.tokens:
                entry.probe.succeeded()
            if emission.finish is not None:
                del live[emission.id]
            elif emission.started:
                entry.started = True
            entry.emitted.extend(emission.tokens)
            entry.stream.put(emission)
        if load is not None:
            self.on_load(step.seen)

    # The engine dies, and another comes.

    def went(self, absence: Absence) -> None:
        """The parent says that the engine has died, and will be started again."""
        if self.engine is not None and self.engine.epoch > absence.epoch:
            return  # it is there already
        log.warning("the engine is away (%s); %d live requests wait for it", absence.why, len(self._live))
        if self._away is None:
            self._since = self._clock.now()
        self._away = absence
        if absence.fruitless:
            self.breaker.broke(absence.why, max(1.0, absence.again_s))
        else:
            self.breaker.report(True, probe=False)
        if (refused := self.refusal()) is not None:
            self.fail_live(refused)
        if self._timer is not None:  # it may be the long one
            self._timer.cancel()
            self._greet()

    def _welcome(self, message: Welcome) -> None:
        if message.lost:
            self.fail_live(EngineUnavailable("steps of this request were lost"))
        former, self.engine = self.engine, message
        if self._away is not None and message.epoch > self._away.epoch:
            self._away = None
            self._restart_s += 0.5 * (self._clock.now() - self._since - self._restart_s)
        if former is None or former.epoch == message.epoch:
            return
        self.restarts += 1
        again = [entry for _, entry in sorted(self._live.items()) if not entry.convicted]
        self.on_replay(len(again))
        log.info("a new engine is here; it is given %d live requests", len(again))
        for entry in again:
            self._again(entry, message.epoch)

    def _again(self, entry: Entry, epoch: int) -> None:
        assert self._socket is not None
        if self._socket.send(entry.again(epoch)):
            entry.fresh = False
        else:
            del self._live[entry.stream.id]
            entry.stream.fail(EngineUnavailable("the engine does not read its messages"))

    def convict(self, id: int, tell: Callable[[str], None]) -> None:
        """Engines die of this request: `tell` gets its fingerprint. It ends when all workers have been told
        (`poisoned`), so that whoever asks again is refused by any of them."""
        entry = self._live.get(id)
        if entry is not None:
            entry.convicted = True
            tell(fingerprint(entry.request))

    def poisoned(self, what: str, until: float) -> None:
        """Requests of this fingerprint are refused until then, and those that are live end."""
        self._poison.add(what, until)
        for entry in [entry for entry in self._live.values() if fingerprint(entry.request) == what]:
            self._fail(entry, RequestFailed("engines die of this request; it is refused for a while", code=POISON))

    def _expire(self) -> None:
        """Ends the requests whose time has run out while no engine is there to do it."""
        now = self._clock.now()
        for id, entry in list(self._live.items()):
            request = entry.request
            if request.deadline is None or request.deadline > now:
                continue
            del self._live[id]
            entry.probe.abandoned()
            cut = request.truncate and entry.emitted
            detail = "the deadline passed while the engine was being restarted"
            finish = Finish.LENGTH if cut else Finish.EXPIRED
            entry.stream.put(Emission(id=id, finish=finish, detail=detail))

    def fail_live(self, error: HeadwayError) -> None:
        """Ends every live request with `error`."""
        for entry in list(self._live.values()):
            self._fail(entry, error)

    def _fail(self, entry: Entry, error: HeadwayError) -> None:
        self._live.pop(entry.stream.id, None)
        entry.probe.abandoned()
        entry.stream.fail(error)
        entry.stream.close("server failure")

    def shut(self, error: HeadwayError) -> None:
        """Nothing can be opened from now on, and every live request ends with `error`."""
        if self._live:
            log.warning("%s; ending %d live requests", error.message, len(self._live))
        self._dead = error
        self.fail_live(error)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._socket is not None:
            self._socket.close()
            self._socket = None
