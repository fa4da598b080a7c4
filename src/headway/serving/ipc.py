"""The local socket between API workers and the engine: msgpack over one ZeroMQ ROUTER and a DEALER per worker.

A message that cannot be read is logged and dropped; nothing that arrives can end a process.
"""

import asyncio
import logging
from collections.abc import Callable

import msgspec
import zmq

from headway.core.events import StepMessage
from headway.core.request import Cancel, EngineRequest, worker_of

log = logging.getLogger(__name__)

# Messages queued for one peer. A worker gets at most one per step, and only for its own live requests, so it must
# have been stuck for minutes to fill this.
HIGH_WATER = 65_536
RECONNECT_MS = 20  # between looks for an engine that has been restarted
BURST = 64  # messages taken at once before the event loop gets its turn


class Hello(msgspec.Struct, frozen=True, array_like=True, tag="hello"):
    """A worker makes itself known; repeated while the engine is silent."""

    worker: int
    life: int = 0  # counts its starts: requests of an earlier one belong to nobody


class Welcome(msgspec.Struct, frozen=True, array_like=True, kw_only=True, tag="welcome"):
    """The engine's answer once its model is loaded."""

    epoch: int
    fingerprint: str
    context: int  # longest sequence this engine can hold
    capacity: int  # sequences it can run at once
    vocab_size: int
    lost: bool = False  # steps were dropped because the worker did not read: its live requests are void


class Step(msgspec.Struct, frozen=True, array_like=True, tag="step"):
    """One step (or a heartbeat) for one worker."""

    seen: int  # serial of the worker's newest request that `message.load` already counts
    message: StepMessage


class Reconfigure(msgspec.Struct, frozen=True, array_like=True, kw_only=True, tag="reconfigure"):
    """A worker asks for other settings; the answer is a Reconfigured with the same token."""

    epoch: int
    token: int
    changes: str  # JSON of what `with_changes` takes


class Reconfigured(msgspec.Struct, frozen=True, array_like=True, kw_only=True, tag="reconfigured"):
    """The engine's answer; where it took the changes, the worker's SettingsChanged has gone before."""

    token: int
    problem: str | None = None  # None: taken
    param: str | None = None  # the wrong entry


class SettingsChanged(msgspec.Struct, frozen=True, array_like=True, kw_only=True, tag="settings"):
    """The live settings, whole: to every worker when they change and after each Welcome."""

    epoch: int
    version: int  # counts the changes of this engine's life
    settings: str  # JSON of the live sections


Inbound = EngineRequest | Cancel | Hello | Reconfigure
Outbound = Welcome | Step | SettingsChanged | Reconfigured


class WorkerStalled(Exception):
    """A worker's queue is full: it has stopped reading."""


def identity(worker: int) -> bytes:
    return b"%d" % worker


class EngineSocket:
    """The engine's end. Not thread-safe: it belongs to the engine loop."""

    def __init__(self, address: str) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.setsockopt(zmq.LINGER, 200)  # ms: lets last words out, but never holds up an exit
        self._socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        self._socket.setsockopt(zmq.ROUTER_HANDOVER, 1)  # a restarted worker takes over its own name
        self._socket.set_hwm(HIGH_WATER)
        self._socket.bind(address)
        self._decoder = msgspec.msgpack.Decoder(Inbound)
        self._encoder = msgspec.msgpack.Encoder()

    def poll(self, timeout_s: float) -> bool:
        """Waits for a message; True if there is one."""
        return bool(self._socket.poll(max(0, int(timeout_s * 1000 + 0.999))))

    def receive(self) -> tuple[int, Inbound] | None:
        """The next readable message and its worker, or None when the inbox is empty."""
        while True:
            try:
                frames = self._socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return None
            try:
                worker = int(frames[0])
                message = self._decoder.decode(frames[-1])
                _check(worker, message)
            except (ValueError, msgspec.MsgspecError) as error:
                log.warning("dropped a malformed message of %d bytes: %s", len(frames[-1]), error)
                continue
            return worker, message

    def send(self, worker: int, message: Outbound) -> None:
        """Queues a message; never blocks. Raises WorkerStalled; a worker that has gone is ignored."""
        try:
            self._socket.send_multipart((identity(worker), self._encoder.encode(message)), zmq.NOBLOCK)
        except zmq.Again:
            raise WorkerStalled(f"API worker {worker} does not read") from None
        except zmq.ZMQError as error:
            if error.errno != zmq.EHOSTUNREACH:
                raise

    def close(self) -> None:
        self._socket.close()
        self._context.term()


def _check(worker: int, message: Inbound) -> None:
    if isinstance(message, Hello | Reconfigure):
        return
    if worker_of(message.id) != worker:
        raise ValueError(f"request {message.id} is not worker {worker}'s")
    if isinstance(message, EngineRequest) and (not message.prompt or len(message.prompt) % 4):
        raise ValueError(f"request {message.id} has a prompt of {len(message.prompt)} bytes")


class WorkerSocket:
    """An API worker's end, on its event loop.

    The socket's file descriptor is watched directly: zmq.asyncio spends a future and a task switch on every message.
    The descriptor is edge-triggered, so it is read until empty, and looked at again after every send.
    """

    def __init__(self, address: str, worker: int, on_message: Callable[[Outbound], None]) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.setsockopt(zmq.LINGER, 200)
        self._socket.setsockopt(zmq.IDENTITY, identity(worker))
        self._socket.setsockopt(zmq.RECONNECT_IVL, RECONNECT_MS)
        self._socket.set_hwm(HIGH_WATER)
        self._socket.connect(address)
        self._on_message = on_message
        self._decoder = msgspec.msgpack.Decoder(Outbound)
        self._encoder = msgspec.msgpack.Encoder()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._socket.fileno(), self._read)

    def send(self, message: Inbound) -> bool:
        """Queues a message; False where the engine has not read for so long that the queue is full."""
        try:
            self._socket.send(self._encoder.encode(message), zmq.NOBLOCK)
        except zmq.Again:
            return False
        self._loop.call_soon(self._read)  # sending may have swallowed the descriptor's edge
        return True

    def _read(self) -> None:
        if self._socket.closed:
            return
        for _ in range(BURST):
            try:
                data = self._socket.recv(zmq.NOBLOCK)
            except zmq.Again:
                return
            try:
                message = self._decoder.decode(data)
            except msgspec.MsgspecError as error:
                log.warning("dropped a malformed message of %d bytes: %s", len(data), error)
                continue
            self._on_message(message)
        self._loop.call_soon(self._read)

    def close(self) -> None:
        self._loop.remove_reader(self._socket.fileno())
        self._socket.close()
        self._context.term()
