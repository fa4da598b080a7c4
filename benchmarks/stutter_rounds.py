"""Measures what stutter.py shows: streams beside a long prompt, and several long prompts at once."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass

from report import note
from server import Server
from traffic import Client

from headway.bench.load_stats import Spread
from headway.bench.load_try import Try

STREAMS, STREAM_PROMPT = 8, 32
PROMPTS = 4  # at once


@dataclass(frozen=True, slots=True)
class Size:
    prompt: int = 4000
    output: int = 300  # of each stream
    before: int = 40  # of them, when the prompt comes
    rounds: int = 5


@dataclass(frozen=True, slots=True)
class Round:
    alone_s: float
    beside_s: float
    beside: Spread  # gaps in ms while the prompt is computed
    whole: Spread  # all gaps of all streams
    first_stream: list[tuple[float, float]]  # begin, seconds
    prompt: tuple[float, float]  # sent, first token


def gaps_of(attempt: Try) -> Iterator[tuple[float, float]]:
    """(begin, seconds) of every gap of a stream."""
    at = attempt.stream.first
    for gap in attempt.stream.gaps:
        yield at, gap
        at += gap


def overlapping(gaps: list[tuple[float, float]], begin: float, end: float) -> list[float]:
    return [seconds for at, seconds in gaps if at < end and at + seconds > begin]


async def first_token(client: Client, prompt: int, count: int = 1) -> list[Try]:
    """So many prompts at once; only first tokens are asked for."""
    asked = [client.ask(prompt, 4) for _ in range(count)]  # one token alone may be no text
    await asyncio.gather(*(task for _, task in asked))
    return [attempt for attempt, _ in asked]


async def alone_s(client: Client, prompt: int) -> float:
    attempt = (await first_token(client, prompt))[0]
    if not attempt.ok:
        raise SystemExit(f"a prompt was not served alone: {attempt.status} {attempt.message}")
    return took(attempt)


def took(attempt: Try) -> float:
    return attempt.stream.first - attempt.started


async def one_round(client: Client, size: Size) -> Round | None:
    """None: the server refused the prompt or a stream."""
    alone = await alone_s(client, size.prompt)
    streams = [client.ask(STREAM_PROMPT, size.output) for _ in range(STREAMS)]
    while any(t.stream.chunks < size.before and not task.done() for t, task in streams):  # noqa: ASYNC110  no event
        await asyncio.sleep(0.005)
    prompt = (await first_token(client, size.prompt))[0]
    await asyncio.gather(*(task for _, task in streams))
    refused = [t.message for t in (prompt, *(t for t, _ in streams)) if not t.ok]
    if refused:
        note(f"  not served: {refused[0]}")
        return None
    short = [t for t, _ in streams if t.stream.last < prompt.stream.first]
    if short:
        note(f"  {len(short)} streams did not outlast the prompt")
    gaps = [gap for t, _ in streams for gap in gaps_of(t)]
    beside = Spread.of(overlapping(gaps, prompt.started, prompt.stream.first), 1e3)
    whole = Spread.of((seconds for _, seconds in gaps), 1e3)
    if beside is None or whole is None:
        raise SystemExit("the streams had ended before the prompt came")
    note(f"  p99 {beside.p99:.1f} ms; the prompt {took(prompt):.2f} s, alone {alone:.2f} s")
    times = prompt.started, prompt.stream.first
    return Round(alone, took(prompt), beside, whole, list(gaps_of(streams[0][0])), times)


async def stutter(server: Server, size: Size) -> list[Round | None]:
    client = Client(server)
    await warm_up(client, size)
    rounds: list[Round | None] = []
    for number_of in range(size.rounds):
        note(f"round {number_of + 1} of {size.rounds}")
        rounds.append(await one_round(client, size))
    return rounds


async def warm_up(client: Client, size: Size) -> None:
    """Decodes, prompts, and both: so that the costs of all are learned. What is refused meanwhile does not matter."""
    note("warming up")
    await first_token(client, size.prompt)
    streams = [client.ask(STREAM_PROMPT, size.output // 2) for _ in range(STREAMS)]
    await first_token(client, size.prompt // 4)
    await asyncio.gather(*(task for _, task in streams))


async def together(server: Server, size: Size) -> list[tuple[float, list[float]]]:
    """By round: a prompt's time alone, and those of several at once, in the order in which they came."""
    client = Client(server)
    await warm_up(client, size)
    found = []
    for number_of in range(size.rounds):
        note(f"{PROMPTS} prompts at once, round {number_of + 1} of {size.rounds}")
        alone = await alone_s(client, size.prompt)
        prompts = await first_token(client, size.prompt, PROMPTS)
        if not all(t.ok for t in prompts):
            raise SystemExit(f"not all prompts were served: {[t.message for t in prompts if not t.ok]}")
        found.append((alone, sorted(map(took, prompts))))
    return found
