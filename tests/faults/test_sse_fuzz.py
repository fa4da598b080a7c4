"""Event streams and answers made wrong at random, read by the client over a real socket: text or a ClientError."""

import asyncio
import json
import random
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from json_mutations import mutated, spoiled
from socket_server import finish, serving

from headway.client import AsyncClient, ClientError, Retry
from headway.client.sse import EventTooLarge, SseParser

CORPUS = Path(__file__).parent / "corpus" / "streams.json"  # what once failed: the data of one event
SEED = 1
CASES, MORE = 160, 20_000
LONGEST_S = 20.0  # of one case, a hang apart from which they take milliseconds
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\nconnection: close\r\n\r\n"
MODES = ("text", "tokens", "events", "whole")
SSE, JSON = b"text/event-stream", b"application/json"


def chunk(text: str, finish_reason: str | None = None) -> dict[str, Any]:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": finish_reason, "token_ids": [5, 6]}
    return {"id": "c-7", "object": "chat.completion.chunk", "choices": [choice]}


USAGE = {"prompt_tokens": 2, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 1}}
ERROR = {"error": {"message": "no", "type": "server_error", "param": None, "code": "deadline_exceeded"}}
CHUNKS = [chunk("a"), chunk("b", "stop"), {"id": "c-7", "choices": [], "usage": USAGE}, ERROR]
WHOLE = {**chunk("ab", "stop"), "object": "chat.completion", "usage": USAGE}


def body_of(rng: random.Random) -> bytes:
    """An event stream, numbered or not, in which something is wrong."""
    events = [json.dumps(part).encode() for part in CHUNKS[: rng.choice((2, 3, 3, 4))]] + [b"[DONE]"]
    if rng.random() < 0.8:
        at = rng.randrange(len(events))
        events[at] = mutated(CHUNKS[at % len(CHUNKS)], rng).replace(b"\n", b" ")
    numbered = rng.random() < 0.5
    lines = [(b"id: c-7-%d\n" % n if numbered else b"") + b"data: " + data for n, data in enumerate(events, 1)]
    body = rng.choice((b"\n\n", b"\n\n", b"\r\n\r\n", b"\r\r")).join([*lines, b""])
    return spoiled(body, rng) if rng.random() < 0.5 else body


def answer_to(mode: str, rng: random.Random) -> bytes:
    return HEAD % JSON + mutated(WHOLE, rng) if mode == "whole" else HEAD % SSE + body_of(rng)


async def read(client: AsyncClient, mode: str) -> None:
    """Raises ClientError."""
    if mode == "whole":
        await client.chat("hi")
        return
    options = {"return_token_ids": True} if mode == "tokens" else {}
    async with client.stream("hi", **options) as stream:
        parts = {"text": stream, "tokens": stream.tokens(), "events": stream.events()}[mode]
        async for _ in parts:
            pass


async def run(cases: Iterator[tuple[str, bytes]]) -> list[str]:
    """What went wrong, by case. All further requests of a case get what the first one got."""
    answer = b""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            length = head.lower().partition(b"content-length: ")[2].partition(b"\r")[0]
            await reader.readexactly(int(length or b"0"))
            writer.write(answer)
            await finish(writer)

    wrong = []
    with serving(handle) as port:
        for mode, answer in cases:
            retry = Retry(most=1, first_wait=0.0, longest_backoff=0.0)
            async with AsyncClient(
                f"http://127.0.0.1:{port}/v1", model="m", retry=retry, fallback="unstreamed"
            ) as client:
                try:
                    await asyncio.wait_for(read(client, mode), LONGEST_S)
                except ClientError:
                    pass
                except Exception as error:  # a TimeoutError too: it hung
                    wrong.append(f"{mode}: {error!r} after {answer[:2000]!r}")
    return wrong


def fuzzed(seed: int, count: int) -> Iterator[tuple[str, bytes]]:
    for number in range(count):
        rng = random.Random(f"{seed}/{number}")
        mode = MODES[number % len(MODES)]
        yield mode, answer_to(mode, rng)


async def test_streams_that_once_failed() -> None:
    kept: list[str] = json.loads(CORPUS.read_text())
    streams = [(mode, HEAD % SSE + b"data: " + data.encode() + b"\n\n") for data in kept for mode in MODES[:3]]
    answers = [("whole", HEAD % JSON + data.encode()) for data in kept]
    assert not await run(iter([*streams, *answers]))


async def test_any_stream_is_read_or_refused() -> None:
    assert not await run(fuzzed(SEED, CASES))


@pytest.mark.long
@pytest.mark.timeout(3600)
async def test_any_of_many_streams_is_read_or_refused() -> None:
    assert not await run(fuzzed(SEED + 1, MORE))


def test_the_parser_takes_any_bytes_however_they_are_cut() -> None:
    for number in range(2000):
        rng = random.Random(number)
        body = spoiled(body_of(rng), rng)
        cuts = sorted({0, len(body), *(rng.randrange(len(body) + 1) for _ in range(5))})
        parser = SseParser(limit=400)
        with suppress(EventTooLarge):
            for start, end in pairwise(cuts):
                for event in parser.feed(body[start:end]):
                    assert len(event.data) <= 400
