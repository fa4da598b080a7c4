"""The engine's loop on a socket of lists."""

import logging
import threading
import time
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from server_rig import make_runner

from headway.core.config import Settings
from headway.core.errors import ModelError
from headway.core.request import EngineRequest, request_id
from headway.core.runner import Runner
from headway.core.sampling import Sampling
from headway.serving.engine_loop import EngineLoop
from headway.serving.ipc import Hello, Inbound, Outbound, Step, Welcome, WorkerStalled


class Socket:
    def __init__(self) -> None:
        self.inbox: list[tuple[int, Inbound]] = []
        self.sent: list[tuple[int, Outbound]] = []
        self.stalled = False

    def poll(self, timeout_s: float) -> bool:
        time.sleep(min(timeout_s, 0.005))
        return bool(self.inbox)

    def receive(self) -> tuple[int, Inbound] | None:
        return self.inbox.pop(0) if self.inbox else None

    def send(self, worker: int, message: Outbound) -> None:
        if self.stalled:
            raise WorkerStalled
        self.sent.append((worker, message))

    def close(self) -> None:
        pass

    def wait(self, condition: Callable[[Outbound], bool]) -> Outbound:
        end = time.monotonic() + 5
        while time.monotonic() < end:
            for _, message in self.sent:
                if condition(message):
                    return message
            time.sleep(0.002)
        raise AssertionError(self.sent)

    def steps(self) -> list[Step]:
        return [message for _, message in self.sent if isinstance(message, Step)]


def request(serial: int, epoch: int = 1, max_tokens: int = 5) -> EngineRequest:
    sampling = Sampling(max_tokens=max_tokens)
    prompt = array("I", [5, 6]).tobytes()
    return EngineRequest(id=request_id(0, serial), epoch=epoch, prompt=prompt, sampling=sampling, arrival=0.0)


@contextmanager
def running(load: Callable[[], Runner]) -> Iterator[Socket]:
    socket = Socket()
    loop = EngineLoop(socket, Settings(), epoch=1)  # type: ignore[arg-type]
    thread = threading.Thread(target=loop.run, args=(load,))
    thread.start()
    try:
        yield socket
    finally:
        loop.stop()
        thread.join(5)
        assert not thread.is_alive()


def slow_runner() -> Runner:
    return make_runner(400, step_s=lambda batch: 0.01)


def running_of(step: Step) -> int | None:
    return None if step.message.load is None else step.message.load.running


def test_loading_is_visible_and_what_comes_early_is_served() -> None:
    loaded = threading.Event()

    def load() -> Runner:
        loaded.wait(5)
        return slow_runner()

    with running(load) as socket:
        socket.inbox += [(0, Hello(0)), (0, request(1))]
        first = socket.wait(lambda message: isinstance(message, Step))
        assert isinstance(first, Step) and first.message.load is not None
        assert not first.message.load.ready and first.seen == 0
        loaded.set()
        welcome = socket.wait(lambda message: isinstance(message, Welcome))
        assert isinstance(welcome, Welcome) and (welcome.epoch, welcome.context, welcome.lost) == (1, 512, False)
        end = socket.wait(lambda m: isinstance(m, Step) and any(e.finish for e in m.message.emissions))
        assert isinstance(end, Step) and end.message.load is not None
        assert end.seen == 1 and end.message.load.ready


def test_heartbeats_while_idle_and_other_epochs_are_dropped() -> None:
    with running(slow_runner) as socket:
        socket.inbox += [(0, Hello(0)), (0, request(1, epoch=7))]
        socket.wait(lambda message: isinstance(message, Welcome))
        time.sleep(0.6)
        steps = [step for step in socket.steps() if step.message.load is not None and step.message.load.ready]
        assert len(steps) >= 2 and all(step.seen == 0 and not step.message.emissions for step in steps)


def test_a_worker_that_stalls_loses_its_requests_and_hears_of_it() -> None:
    with running(slow_runner) as socket:
        socket.inbox.append((0, Hello(0)))
        socket.wait(lambda message: isinstance(message, Welcome))
        socket.inbox.append((0, request(1, max_tokens=500)))
        socket.wait(lambda m: isinstance(m, Step) and running_of(m) == 1)
        socket.stalled = True
        time.sleep(0.3)
        socket.stalled = False
        socket.sent.clear()
        time.sleep(0.4)
        assert not socket.sent  # nothing more before it says hello
        socket.inbox.append((0, Hello(0)))
        welcome = socket.wait(lambda message: isinstance(message, Welcome))
        assert isinstance(welcome, Welcome) and welcome.lost
        load = socket.wait(lambda message: isinstance(message, Step))
        assert isinstance(load, Step) and running_of(load) == 0


def test_a_model_that_cannot_be_loaded_ends_the_loop() -> None:
    def load() -> Runner:
        raise ModelError("no such file")

    with pytest.raises(ModelError, match="no such file"):
        EngineLoop(Socket(), Settings(), epoch=1).run(load)  # type: ignore[arg-type]


def test_says_what_runs(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with running(slow_runner) as socket:
        socket.inbox.append((0, Hello(0)))
        socket.wait(lambda message: isinstance(message, Welcome))
    assert "fake on" in caplog.text and "sequences" in caplog.text  # the fingerprint names kernels and KV type
