"""What a step of the engine spends in Python, by its own records, its messages sent over a socket as in a server."""

import random
import statistics
import time
from array import array
from collections.abc import Callable
from dataclasses import dataclass

import msgspec
import zmq
from report import note
from streaming_cost import STREAMS

from headway.core.clock import MonotonicClock
from headway.core.config import load_settings
from headway.core.request import EngineRequest, request_id
from headway.core.sampling import Sampling
from headway.model.load import load_runner
from headway.model.source import resolve
from headway.scheduling.engine import Engine
from headway.scheduling.step_record import StepRecord
from headway.serving.address import engine_address
from headway.serving.engine_process import defer_garbage
from headway.serving.ipc import EngineSocket, Hello, Step, identity

PROMPT, STEPS = 128, 100  # tokens; measured steps of a round


@dataclass(frozen=True, slots=True)
class StepCost:
    """Milliseconds of one step in which all streams decode."""

    plan: float
    build: float  # from planned to collected, but for `compute`: the batch, the tokens, and waking two threads
    compute: float  # in the native core
    commit: float
    publish: float  # beside `compute`, whose threads have all cores: much longer than its CPU time
    cpu: float  # CPU time of the engine's thread for all it does in a step

    @property
    def python_ms(self) -> float:
        return self.plan + self.build + self.commit + self.publish


def measure_steps(rounds: int) -> StepCost:
    """Medians over all steps of all rounds."""
    defer_garbage()  # as the engine does
    settings = load_settings(None, {"promise": {"itl_ms": 0.0}})
    with engine_address() as address:
        socket = EngineSocket(address)
        peer = _peer(socket, address)
        runner = load_runner(resolve(None, False), settings.engine)
        records: list[StepRecord] = []
        engine = Engine(
            runner, settings, MonotonicClock(), 0, lambda worker, m: socket.send(worker, Step(0, m)), records.append
        )
        engine.warm_up()
        try:
            cpu = []
            for index in range(rounds):
                note(f"steps of {STREAMS} sequences, round {index + 1}")
                cpu += _decode(engine, index)
        finally:
            runner.close()
            peer.close()
            socket.close()
    full = [r for r in records if r.sequences == STREAMS == r.tokens]
    return StepCost(
        plan=_median(full, lambda r: r.plan_s),
        build=_median(full, lambda r: r.execute_s - r.compute_s),
        compute=_median(full, lambda r: r.compute_s),
        commit=_median(full, lambda r: r.commit_s),
        publish=_median(full, lambda r: r.publish_s),
        cpu=statistics.median(cpu) * 1e3,
    )


def _median(records: list[StepRecord], value: Callable[[StepRecord], float]) -> float:
    return statistics.median(map(value, records)) * 1e3


def _peer(socket: EngineSocket, address: str) -> "zmq.Socket[bytes]":
    """A worker that never reads, so that only the engine's part is seen."""
    peer: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.DEALER)
    peer.setsockopt(zmq.IDENTITY, identity(0))
    peer.setsockopt(zmq.LINGER, 0)
    peer.set_hwm(0)
    peer.connect(address)
    peer.send(msgspec.msgpack.encode(Hello(0)))
    socket.poll(10.0)
    socket.receive()  # now the worker is known
    return peer


def _decode(engine: Engine, seed: int) -> list[float]:
    """CPU seconds of this thread for each step."""
    chance = random.Random(seed)
    for index in range(STREAMS):
        ids = array("I", (chance.randrange(1000, 40_000) for _ in range(PROMPT)))
        sampling = Sampling(max_tokens=STEPS + STREAMS, temperature=0.8, top_p=0.95, seed=index, ignore_eos=True)
        id = request_id(0, seed * STREAMS + index + 1)
        engine.submit(EngineRequest(id=id, epoch=0, prompt=ids.tobytes(), sampling=sampling, arrival=0.0))
    cpu = []
    while engine.has_work:
        before = time.thread_time()
        engine.step()
        cpu.append(time.thread_time() - before)
    return cpu
