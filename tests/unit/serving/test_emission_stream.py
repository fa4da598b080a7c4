import asyncio

import pytest

from headway.core.errors import EngineUnavailable, RequestFailed
from headway.core.events import Emission, Finish
from headway.serving.emission_stream import EmissionStream


def make(limit: int = 4) -> tuple[EmissionStream, list[str]]:
    cancels: list[str] = []
    return EmissionStream(1, limit, cancels.append), cancels


def token(i: int, finish: Finish | None = None) -> Emission:
    return Emission(id=1, tokens=[i], finish=finish)


def test_reads_in_order_and_waits() -> None:
    async def scenario() -> list[int]:
        stream, _ = make()
        loop = asyncio.get_running_loop()
        loop.call_later(0.01, stream.put, token(1))
        loop.call_later(0.02, stream.put, token(2))
        return [(await stream.get()).tokens[0], (await stream.get()).tokens[0]]

    assert asyncio.run(scenario()) == [1, 2]


def test_cancels_once_and_not_after_the_end() -> None:
    async def scenario() -> None:
        stream, cancels = make()
        stream.close("disconnect")
        stream.close("again")
        assert cancels == ["disconnect"]
        ended, cancels = make()
        ended.put(token(1, Finish.LENGTH))
        ended.close("disconnect")
        assert cancels == []

    asyncio.run(scenario())


def test_overflow_fails_this_stream_and_frees_its_buffer() -> None:
    async def scenario() -> None:
        stream, cancels = make(limit=3)
        calls: list[None] = []
        stream.on_overflow = lambda: calls.append(None)
        for i in range(10):
            stream.put(token(i))
        assert cancels == ["slow reader"] and len(calls) == 1
        assert stream.take() is None
        with pytest.raises(RequestFailed, match="slow"):
            await stream.get()

    asyncio.run(scenario())


def test_what_came_before_a_failure_is_still_read() -> None:
    async def scenario() -> None:
        stream, _ = make()
        stream.put(token(1))
        stream.fail(EngineUnavailable("gone"))
        assert (await stream.get()).tokens == [1]
        with pytest.raises(EngineUnavailable):
            await stream.get()

    asyncio.run(scenario())
