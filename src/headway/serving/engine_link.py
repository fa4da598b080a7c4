"""An API worker's view of the engine: its live requests, the newest load, and whether anybody is there."""

import asyncio
import logging
from collections.abc import Callable

from headway.core.clock import Clock
from headway.core.errors import EngineUnavailable, HeadwayError
from headway.core.events import Load
from headway.core.request import Cancel, EngineRequest, request_id
from headway.serving.emission_stream import EmissionStream
from headway.serving.ipc import Hello, Outbound, Reconfigure, Reconfigured, SettingsChanged, Step, Welcome, WorkerSocket

log = logging.getLogger(__name__)

HELLO_S = 1.0  # silence after which a worker says hello again
# An engine that has not been heard for so long counts as hung. A step must be shorter; with the default step of 512
# tokens that holds down to 50 tokens/s of prefill.
STALE_S = 10.0


class EngineLink:
    """Owns the worker's socket. `on_load` hears the `seen` serial of each load, for the gate; `on_settings` what the
    engine says of settings."""

    def __init__(self, address: str, worker: int, clock: Clock, stream_limit: int) -> None:
        self._address = address
        self._worker = worker
        self._clock = clock
        self._limit = stream_limit
        self._live: dict[int, EmissionStream] = {}
        self._serial = 0
        self._socket: WorkerSocket | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._heard = clock.now()
        self._dead: HeadwayError | None = None
        self.engine: Welcome | None = None  # None: not loaded yet
        self.load: Load | None = None
        self.on_load: Callable[[int], None] = lambda seen: None
        self.on_settings: Callable[[SettingsChanged | Reconfigured], None] = lambda message: None

    def start(self) -> None:
        """Connects; call on the event loop."""
        self._socket = WorkerSocket(self._address, self._worker, self._receive)
        self._greet()

    def _greet(self) -> None:
        assert self._socket is not None
        if self.engine is None or self._clock.now() - self._heard >= HELLO_S:
            self._socket.send(Hello(self._worker))
        self._timer = asyncio.get_running_loop().call_later(HELLO_S, self._greet)

    @property
    def live(self) -> int:
        """Requests given to the engine whose end has not been read or asked for."""
        return len(self._live)

    def now(self) -> float:
        return self._clock.now()

    def trouble(self) -> str | None:
        """Why the engine cannot take a request, or None."""
        if self._dead is not None:
            return self._dead.message
        if self.load is None or self.engine is None or not self.load.ready:
            return "the model is still loading"
        age = self._clock.now() - self.load.time
        if age > STALE_S:
            return f"the engine has given no sign of life for {age:.0f} s"
        return None

    def next_serial(self) -> int:
        self._serial += 1
        return self._serial

    def open(self, serial: int, build: Callable[[int, int], EngineRequest]) -> EmissionStream:
        """Sends `build(id, epoch)` to the engine. Raises EngineUnavailable."""
        if self._dead is not None:
            raise self._dead
        if self._socket is None or self.engine is None:
            raise EngineUnavailable("the model is still loading")
        id = request_id(self._worker, serial)
        epoch = self.engine.epoch
        stream = EmissionStream(id, self._limit, lambda reason: self._cancel(id, epoch, reason))
        if not self._socket.send(build(id, epoch)):
            raise EngineUnavailable("the engine does not read its messages")
        self._live[id] = stream
        return stream

    def reconfigure(self, token: int, changes: str) -> None:
        """Asks the engine for other settings. Raises EngineUnavailable."""
        trouble = self.trouble()
        if trouble is not None or self._socket is None or self.engine is None:
            raise EngineUnavailable(trouble or "the model is still loading")
        if not self._socket.send(Reconfigure(epoch=self.engine.epoch, token=token, changes=changes)):
            raise EngineUnavailable("the engine does not read its messages")

    def _cancel(self, id: int, epoch: int, reason: str) -> None:
        self._live.pop(id, None)
        if self._socket is not None:
            self._socket.send(Cancel(id=id, epoch=epoch, reason=reason))

    def _receive(self, message: Outbound) -> None:
        self._heard = self._clock.now()
        if isinstance(message, Welcome):
            if message.lost:
                self.fail_live(EngineUnavailable("steps of this request were lost"))
            self.engine = message
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
            stream = live.get(emission.id)
            if stream is None:
                continue  # cancelled meanwhile; the engine's last words on it
            if emission.finish is not None:
                del live[emission.id]
            stream.put(emission)
        if load is not None:
            self.on_load(step.seen)

    def fail_live(self, error: HeadwayError) -> None:
        """Ends every live request with `error`."""
        streams, self._live = list(self._live.values()), {}
        for stream in streams:
            stream.fail(error)
            stream.close("server failure")

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
