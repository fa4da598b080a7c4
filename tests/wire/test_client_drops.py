"""500 streams through a proxy that cuts connections at random bytes: each ends as was chosen."""

import asyncio
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import pytest
from cutting_proxy import Cuts, cutting_proxy
from resume_stub import resume_stub
from server_rig import make_rig

from headway.client import AsyncClient, CircuitBreaker, Restarted, Retry, StreamDropped, Timing
from headway.client.stream import AsyncStream
from headway.core.clock import MonotonicClock

STREAMS = 500
TOGETHER = 32
MANY_CUTS = 6_000  # bytes until one, at most; a stream has up to 15,000
FEW_CUTS = 40_000


SERVERS = {"stub": resume_stub, "headway": make_rig}
TARGETS = ["stub", pytest.param("headway", marks=pytest.mark.long)]


@dataclass(frozen=True)
class Outcome:
    text: str
    finish_reason: str | None
    tokens: int | None
    truncated: bool = False
    dropped: bool = False


@dataclass(frozen=True)
class Target:
    """A server, and what it answers where nothing is cut."""

    port: int
    uncut: list[Outcome]


@pytest.fixture(scope="module", params=TARGETS)
def target(request: pytest.FixtureRequest) -> Iterator[Target]:
    with SERVERS[request.param]() as server:
        port = urlsplit(server.url).port
        assert port is not None
        yield Target(port, asyncio.run(ask(port)))


async def at_once(seconds: float) -> None:
    pass


async def ask(port: int, cuts: Cuts | None = None, **options: Any) -> list[Outcome]:
    """All streams, 32 at a time, every third read as events."""
    seats = asyncio.Semaphore(TOGETHER)

    async def one(i: int) -> Outcome:
        async with seats:
            said = own.stream(f"question {i}", seed=i, max_tokens=60)
            try:
                text = await (_events(said) if i % 3 == 0 else _text(said))
            except StreamDropped as dropped:
                return Outcome(dropped.partial, said.finish_reason, _tokens(said), dropped=True)
            return Outcome(text, said.finish_reason, _tokens(said), said.truncated)

    def client(to: int) -> AsyncClient:
        patient = Retry(most=100, rng=random.Random(0))
        never_open = CircuitBreaker(MonotonicClock(), failures=1_000_000)
        timing = Timing(sleep=at_once)
        return AsyncClient(f"http://127.0.0.1:{to}", retry=patient, breaker=never_open, timing=timing, **options)

    if cuts is None:
        async with client(port) as own:
            return await asyncio.gather(*[one(i) for i in range(STREAMS)])
    with cutting_proxy(port, cuts) as proxy:
        async with client(proxy) as own:
            return await asyncio.gather(*[one(i) for i in range(STREAMS)])


def _tokens(said: AsyncStream) -> int | None:
    return said.usage and said.usage.completion_tokens


async def _text(said: AsyncStream) -> str:
    return "".join([piece async for piece in said])


async def _events(said: AsyncStream) -> str:
    texts: list[str] = []
    async for event in said.events():
        if isinstance(event, Restarted):
            texts.clear()
        elif event["choices"]:
            texts.append(event["choices"][0]["delta"].get("content") or "")
    return "".join(texts)


async def test_resumed_streams_equal_the_uncut_ones(target: Target) -> None:
    cuts = Cuts(seed=1, most=MANY_CUTS)
    assert await ask(target.port, cuts, on_drop="resume") == target.uncut
    assert cuts.made > STREAMS
    assert all(outcome.text and outcome.finish_reason and outcome.tokens for outcome in target.uncut)


@pytest.mark.parametrize("on_drop", ["retry", "unstreamed"])
async def test_repeated_requests_equal_the_uncut_ones(target: Target, on_drop: Any) -> None:
    cuts = Cuts(seed=2, most=FEW_CUTS)
    outcomes = await ask(target.port, cuts, on_drop=on_drop)
    assert [(o.text, o.finish_reason) for o in outcomes] == [(o.text, o.finish_reason) for o in target.uncut]
    assert cuts.made > STREAMS / 10


@pytest.mark.parametrize("on_drop", ["partial", "raise"])
async def test_cut_streams_end_with_what_there_is(target: Target, on_drop: Any) -> None:
    cuts = Cuts(seed=3, most=FEW_CUTS)
    outcomes = await ask(target.port, cuts, on_drop=on_drop)
    for outcome, whole in zip(outcomes, target.uncut, strict=True):
        cut = outcome.finish_reason is None
        assert whole.text.startswith(outcome.text) and (cut or outcome.text == whole.text)
        assert outcome.truncated is (cut and on_drop == "partial")
        assert outcome.dropped is (cut and on_drop == "raise")
    assert STREAMS / 20 < sum(outcome.finish_reason is None for outcome in outcomes) <= cuts.made


async def test_another_answer_is_never_mixed_into_the_first() -> None:
    with resume_stub(resumable=False, alike=False) as stub:
        outcomes = await ask(stub.port, Cuts(seed=4, most=FEW_CUTS), on_drop="resume", fallback="retry")
    assert any(outcome.dropped for outcome in outcomes)
    assert all(outcome.finish_reason for outcome in outcomes if not outcome.dropped)
