import asyncio
from array import array

import msgspec
import pytest
import zmq

from headway.core.events import Emission, Load, StepMessage
from headway.core.request import Cancel, EngineRequest, request_id
from headway.core.sampling import Sampling
from headway.serving import ipc
from headway.serving.address import engine_address
from headway.serving.ipc import (
    EngineSocket,
    Hello,
    Inbound,
    Outbound,
    Reconfigure,
    Reconfigured,
    SettingsChanged,
    Step,
    Welcome,
    WorkerSocket,
    WorkerStalled,
)

LOAD = Load(
    time=1.0, ready=True, waiting=0, waiting_tokens=0, running=0, free_blocks=1, total_blocks=1, predicted_wait_s=0.0
)


def request(worker: int, serial: int, prompt: bytes = array("I", [1]).tobytes()) -> EngineRequest:
    sampling = Sampling(max_tokens=1, seed=2**64 - 1)
    return EngineRequest(id=request_id(worker, serial), epoch=1, prompt=prompt, sampling=sampling, arrival=0.0)


def receive(engine: EngineSocket) -> tuple[int, Inbound]:
    assert engine.poll(2.0)
    arrived = engine.receive()
    assert arrived is not None
    return arrived


def test_there_and_back() -> None:
    async def scenario(address: str, engine: EngineSocket) -> None:
        inbox: list[Outbound] = []
        worker = WorkerSocket(address, 3, inbox.append)
        sent: list[Inbound] = [
            Hello(3),
            request(3, 1),
            Cancel(id=request_id(3, 1), epoch=1, reason="disconnect"),
            Reconfigure(epoch=1, token=1, changes="{}"),
        ]
        for message in sent:
            assert worker.send(message)
        assert [receive(engine) for _ in sent] == [(3, message) for message in sent]
        assert engine.receive() is None
        emission = Emission(id=5, tokens=[1, 2], started=True)
        answers: list[Outbound] = [
            Welcome(epoch=1, fingerprint="f", context=9, capacity=2, vocab_size=5),
            SettingsChanged(epoch=1, version=2, settings="{}"),
            Reconfigured(token=1, problem="p", param="q"),
            *[Step(i, StepMessage(epoch=1, emissions=[emission], load=LOAD)) for i in range(200)],
        ]
        for answer in answers:
            engine.send(3, answer)
        for _ in range(200):
            await asyncio.sleep(0.005)
            if len(inbox) == len(answers):
                break
        assert inbox == answers
        worker.close()

    with engine_address() as address:
        engine = EngineSocket(address)
        asyncio.run(scenario(address, engine))
        engine.send(99, Welcome(epoch=1, fingerprint="f", context=9, capacity=2, vocab_size=5))  # nobody: ignored
        engine.close()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        msgspec.msgpack.encode({"a": 1}),
        msgspec.msgpack.encode(["request", 1]),
        msgspec.msgpack.encode(request(8, 1)),  # another worker's
        msgspec.msgpack.encode(request(7, 1, b"")),
        msgspec.msgpack.encode(request(7, 1, b"abc")),
    ],
)
def test_a_malformed_message_is_dropped(data: bytes, caplog: pytest.LogCaptureFixture) -> None:
    with engine_address() as address:
        engine = EngineSocket(address)
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        socket = context.socket(zmq.DEALER)
        socket.setsockopt(zmq.IDENTITY, b"7")
        socket.connect(address)
        socket.send(data)
        socket.send(msgspec.msgpack.encode(Hello(7)))
        assert receive(engine) == (7, Hello(7))
        assert "malformed" in caplog.text
        socket.close()
        context.term()
        engine.close()


def test_a_worker_that_does_not_read_stalls_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ipc, "HIGH_WATER", 10)
    with engine_address() as address:
        engine = EngineSocket(address)
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        socket = context.socket(zmq.DEALER)
        socket.setsockopt(zmq.IDENTITY, b"7")
        socket.set_hwm(10)
        socket.connect(address)
        socket.send(msgspec.msgpack.encode(Hello(7)))
        receive(engine)
        big = Step(0, StepMessage(epoch=1, emissions=[Emission(id=1, detail="x" * 100_000)], load=LOAD))
        with pytest.raises(WorkerStalled):
            for _ in range(1000):
                engine.send(7, big)
        socket.close(linger=0)
        context.term()
        engine.close()
