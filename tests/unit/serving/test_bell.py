import asyncio

from headway.serving.bell import Bell


def test_what_was_rung_before_is_heard_once() -> None:
    async def scenario() -> None:
        bell = Bell()
        bell.ring()
        bell.ring()
        await bell.wait()
        waiting = asyncio.ensure_future(bell.wait())
        await asyncio.sleep(0)
        assert not waiting.done()
        bell.ring()
        bell.ring()
        await waiting
        again = asyncio.ensure_future(bell.wait())
        await asyncio.sleep(0)
        assert not again.done()
        again.cancel()

    asyncio.run(scenario())


def test_one_who_gave_up_waiting_is_not_rung_for() -> None:
    async def scenario() -> None:
        bell = Bell()
        waiting = asyncio.ensure_future(bell.wait())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
        bell.ring()
        await bell.wait()

    asyncio.run(scenario())
