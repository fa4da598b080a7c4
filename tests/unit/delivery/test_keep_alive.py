import asyncio
from typing import Any

from headway.delivery.keep_alive import KeepAlive


def test_comments_come_into_silence_only() -> None:
    async def scenario() -> tuple[int, int]:
        sent: list[Any] = []

        async def send(message: Any) -> None:
            sent.append(message)

        keep_alive = KeepAlive(b": keep-alive\n\n", 0.08, send)
        for _ in range(10):
            await asyncio.sleep(0.02)
            keep_alive.sent()
        busy = len(sent)
        await asyncio.sleep(0.3)
        keep_alive.close()
        silent = len(sent)
        await asyncio.sleep(0.1)
        assert len(sent) == silent
        return busy, silent

    busy, silent = asyncio.run(scenario())
    assert busy == 0 and 1 <= silent <= 4


def test_a_reader_that_takes_nothing_gets_one_comment() -> None:
    async def scenario() -> int:
        calls: list[None] = []

        async def stuck(message: Any) -> None:
            calls.append(None)
            await asyncio.Event().wait()

        keep_alive = KeepAlive(b"x", 0.01, stuck)
        await asyncio.sleep(0.1)
        keep_alive.close()
        return len(calls)

    assert asyncio.run(scenario()) == 1
