"""Tokens a second over HTTP and by `LLM` in this process, the same requests, in turn."""

import asyncio
import time
from dataclasses import dataclass

import msgspec
from report import note, percent
from server import Server
from streaming_cost import STREAMS
from traffic import run

from headway import LLM, Params
from headway.bench.load_http import Address, Pool, clock
from headway.bench.load_run import make_request
from headway.bench.load_try import Try
from headway.bench.load_workload import Workload
from headway.core.config import load_settings

LENGTHS = 128, 128  # tokens in and out
UNPACED = "[promise]\nitl_ms = 0\n"  # prompts in whole pieces, on both sides


@dataclass(frozen=True, slots=True)
class Round:
    """Output tokens a second from when the first request is sent until the last has ended."""

    llm: float
    http: float

    @property
    def share(self) -> float:
        return self.http / self.llm


def measure_rounds(rounds: int) -> list[Round]:
    """After one that does not count. Prompts are new in each."""
    settings = load_settings(None, {"promise": {"itl_ms": 0.0}})
    done = []
    with Server(config=UNPACED) as server, LLM(settings=settings, show_progress=False) as llm:
        for index in range(rounds + 1):
            workload = Workload(
                server.model, chat=False, input_tokens=(LENGTHS[0],) * 2, seed=index, extra={"temperature": 0}
            )
            order = (_llm, _http) if index % 2 else (_http, _llm)
            speeds = {side: side(server, llm, workload) for side in order}
            if index:
                done.append(Round(speeds[_llm], speeds[_http]))
                note(f"round {index}: LLM {done[-1].llm:.0f}, HTTP {done[-1].http:.0f}, {percent(done[-1].share)}")
    return done


def _llm(server: Server, llm: LLM, workload: Workload) -> float:
    prompts = [msgspec.json.decode(workload.body(index)[0])["prompt"] for index in range(STREAMS)]
    params = Params(max_tokens=LENGTHS[1], temperature=0.0, ignore_eos=True)
    start = time.perf_counter()
    done = llm.generate(prompts, params, show_progress=False)
    elapsed = time.perf_counter() - start
    return sum(completion.completion_tokens for completion in done) / elapsed


def _http(server: Server, llm: LLM, workload: Workload) -> float:
    return run(_stream(server, workload))


async def _stream(server: Server, workload: Workload) -> float:
    address = Address.parse(server.url)
    head = address.head("POST", "/completions", None) + b"Content-Type: application/json\r\n"
    request = make_request(workload, head)
    requests = [request(index, None, LENGTHS[1])[0] for index in range(STREAMS)]
    pool = Pool(address, STREAMS)
    start = clock()
    tries = [Try(start, chat=False) for _ in requests]
    await asyncio.gather(*[pool.send(*each, 300.0) for each in zip(requests, tries, strict=True)])
    pool.close()
    if not all(attempt.ok for attempt in tries):
        raise RuntimeError(f"a request failed: {[(t.status, t.error, t.message) for t in tries if not t.ok]}")
    return sum(attempt.tokens for attempt in tries) / (max(attempt.ended for attempt in tries) - start)
