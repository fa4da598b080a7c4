"""Generations read as one, between a scripted engine and a reader that may pause."""

import asyncio
from array import array
from collections.abc import Awaitable, Callable, Sequence

import pytest
from server_rig import SPECIALS, make_text

from headway.core.errors import EngineUnavailable, RequestFailed
from headway.core.events import Emission, Finish
from headway.core.lane import Lane
from headway.core.sampling import Sampling
from headway.delivery.coalesce import Event
from headway.delivery.merge import MOST_TAKEN, Merged
from headway.model.detokenizer import Detokenizer
from headway.observability.metrics import Metrics
from headway.serving.emission_stream import EmissionStream
from headway.serving.gate import Ticket
from headway.serving.generation import Generation
from headway.serving.request import Request, TextPrompt
from headway.serving.text_events import Delta
from headway.serving.text_stream import TextStream

TEXT = make_text()
FIRST = len(SPECIALS)


class Engine:
    """Implements Opener; emissions are what the test says."""

    def __init__(self) -> None:
        self.streams: list[EmissionStream] = []
        self.cancelled: list[str] = []

    def now(self) -> float:
        return 0.0

    async def prepare(self, request: Request, prompt: "array[int] | None") -> "tuple[array[int], Sampling]":
        return array("I", [FIRST]), request.sampling

    def send(
        self, request: Request, ticket: Ticket, prompt: "array[int]", sampling: Sampling, leader: int | None
    ) -> EmissionStream:
        self.streams.append(EmissionStream(len(self.streams), 1000, self.cancelled.append))
        return self.streams[-1]

    def text_stream(self, request: Request) -> TextStream:
        return TextStream(Detokenizer(TEXT.tokenizer), request.stop)

    def left(self, ticket: Ticket) -> None:
        pass

    def merged(self, count: int, coalesce_s: float = 0.0) -> Merged:
        request = Request(prompt=TextPrompt("x"), sampling=Sampling(max_tokens=9, temperature=0.0), arrival=0.0)
        ticket = Ticket(1, 1, Lane.DEFAULT, "", booked=False)
        metrics = Metrics()
        return Merged([Generation(self, request, ticket, metrics) for _ in range(count)], coalesce_s)

    def put(self, index: int, *tokens: int, finish: Finish | None = None, started: bool = False) -> None:
        ids = [FIRST + token for token in tokens]
        self.streams[index].put(Emission(id=index, tokens=ids, finish=finish, started=started))


def words(events: Sequence[Event]) -> str:
    """Texts; S and D for Started and Done."""
    return "".join(event.text if isinstance(event, Delta) else type(event).__name__[0] for _, event in events)


async def play(merged: Merged, engine: Engine, got: list[Event], script: Callable[[], Awaitable[None]]) -> None:
    """Runs `merged` into `got` while the engine does as the script says. Raises what `run` raises."""
    async with merged:
        first = asyncio.create_task(merged.first())
        while not engine.streams:  # noqa: ASYNC110
            await asyncio.sleep(0)
        for index in range(len(engine.streams)):
            engine.put(index, started=True)
        got += await first
        running = asyncio.create_task(merged.run(got.extend))
        await asyncio.sleep(0)
        await script()
        await running


def test_what_comes_is_passed_on_at_once() -> None:
    engine, got = Engine(), list[Event]()

    async def script() -> None:
        for token in (1, 2):
            engine.put(0, token)
            assert words(got) == "S" + '!"'[:token]  # no task has run
        engine.put(0, 3, finish=Finish.LENGTH)

    async def scenario() -> None:
        await play(engine.merged(1), engine, got, script)

    asyncio.run(scenario())
    assert words(got) == 'S!"#D'


def test_choices_come_in_the_order_of_their_steps() -> None:
    engine, got = Engine(), list[Event]()

    async def script() -> None:
        engine.put(1, 1)
        engine.put(0, 2)
        engine.put(0, 3, finish=Finish.LENGTH)
        engine.put(1, 4, finish=Finish.LENGTH)

    async def scenario() -> None:
        await play(engine.merged(2), engine, got, script)

    asyncio.run(scenario())
    assert [(index, words([(index, event)])) for index, event in got] == [
        *((0, "S"), (1, "S"), (1, "!"), (0, '"'), (0, "#"), (0, "D"), (1, "$"), (1, "D")),
    ]


@pytest.mark.parametrize("count", [1, MOST_TAKEN, 5 * MOST_TAKEN + 1])
def test_a_pause_holds_everything_back_and_loses_nothing(count: int) -> None:
    engine, got = Engine(), list[Event]()

    async def scenario() -> None:
        merged = engine.merged(1)

        async def script() -> None:
            merged.pause()
            for _ in range(count - 1):
                engine.put(0, 1)
            engine.put(0, 1, finish=Finish.LENGTH)
            assert words(got) == "S"
            merged.resume()

        await play(merged, engine, got, script)

    asyncio.run(scenario())
    assert words(got) == "S" + "!" * count + "D"


def test_what_came_before_a_failure_comes_first() -> None:
    engine, got = Engine(), list[Event]()

    async def scenario() -> None:
        merged = engine.merged(1)

        async def script() -> None:
            merged.pause()
            for _ in range(2 * MOST_TAKEN):
                engine.put(0, 1)
            engine.streams[0].fail(EngineUnavailable("gone"))
            merged.resume()

        with pytest.raises(EngineUnavailable):
            await play(merged, engine, got, script)

    asyncio.run(scenario())
    assert words(got) == "S" + "!" * 2 * MOST_TAKEN


def test_one_failure_ends_all() -> None:
    engine, got = Engine(), list[Event]()

    async def script() -> None:
        engine.put(0, 1)
        engine.put(1, finish=Finish.FAILED)
        engine.put(0, 2)

    async def scenario() -> None:
        with pytest.raises(RequestFailed):
            await play(engine.merged(2), engine, got, script)

    asyncio.run(scenario())
    assert words(got) == "SS!"
    assert engine.cancelled == ["disconnect"]


def test_text_that_is_joined_comes_when_it_is_due_and_before_an_end() -> None:
    engine, got = Engine(), list[Event]()

    async def scenario() -> None:
        merged = engine.merged(1, coalesce_s=1e-3)

        async def script() -> None:
            engine.put(0, 1)
            engine.put(0, 2)
            assert words(got) == "S"
            while len(got) < 2:  # noqa: ASYNC110
                await asyncio.sleep(0)
            engine.put(0, 3)
            engine.put(0, 4, finish=Finish.LENGTH)

        await play(merged, engine, got, script)

    asyncio.run(scenario())
    assert [words([event]) for event in got] == ["S", '!"', "#$", "D"]
