"""Sends requests when they are due, whatever the server does, and keeps what came back."""

import asyncio
import itertools
from array import array
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from typing import Any

from headway.bench.load_arrivals import Arrival
from headway.bench.load_http import Pool, clock
from headway.bench.load_try import Try
from headway.bench.load_workload import Workload

TICK_S = 0.05
BLIND_WAIT_S = 1.0  # after a refusal that does not say for how long


@dataclass(slots=True)
class Sample:
    """One request. Times are seconds of `clock`."""

    intended: float
    asked: int  # output tokens
    measured: bool  # due after the warm-up
    tries: list[Try] = field(default_factory=list)
    cut_off: bool = False  # still under way when the run was over

    @property
    def outcome(self) -> str:
        """By the last try: ok, refused, failed or cut_off."""
        if self.cut_off or not self.tries:
            return "cut_off"
        last = self.tries[-1]
        return "ok" if last.ok else "refused" if last.refused else "failed"


@dataclass(frozen=True, slots=True)
class Pacing:
    """`arrivals` opens the loop; without them `clients` close it. Bounds count from the end of the warm-up."""

    arrivals: Iterator[Arrival] | None = None
    clients: int = 1
    requests: int | None = None
    duration_s: float | None = None
    warmup_s: float = 0.0
    drain_s: float = 30.0  # for what is under way when the last request has been sent
    timeout_s: float = 120.0  # of one try
    retries: int = 0  # after a refusal


@dataclass(slots=True)
class LoadRun:
    """`request` builds request `index` for (input, output) tokens: its bytes, and the output tokens it asks for."""

    pacing: Pacing
    pool: Pool
    request: Callable[[int, int | None, int | None], tuple[bytes, int]]
    chat: bool = True
    samples: list[Sample] = field(default_factory=list)
    ticks: "array[float]" = field(default_factory=lambda: array("d"))  # lateness of this event loop, seconds
    start: float = 0.0
    stopped: float = 0.0  # when the last request had been sent
    interrupted: bool = False
    sent: int = 0  # measured ones
    tally: "Counter[str]" = field(default_factory=Counter)  # outcomes so far
    _stop: asyncio.Event = field(default_factory=asyncio.Event)
    _failure: BaseException | None = None
    _under_way: "set[asyncio.Task[None]]" = field(default_factory=set)

    def stop(self) -> None:
        """Sends no more, and cuts off what is under way."""
        self.interrupted = True
        self._stop.set()

    @property
    def live(self) -> int:
        return len(self._under_way)

    async def run(self) -> None:
        """Returns when every request has ended or was cut off."""
        self.start = clock()
        ticking = asyncio.create_task(self._tick())
        stopping = asyncio.create_task(self._stop.wait())
        sending = asyncio.create_task(self._open() if self.pacing.arrivals is not None else self._closed())
        try:
            await asyncio.wait({sending, stopping}, return_when=asyncio.FIRST_COMPLETED)
            self.stopped = clock()
            if not stopping.done() and self._under_way:
                ended: asyncio.Future[Any] = asyncio.gather(*self._under_way, return_exceptions=True)
                either: set[asyncio.Future[Any]] = {ended, stopping}
                await asyncio.wait(either, timeout=self.pacing.drain_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (tasks := [ticking, stopping, sending, *self._under_way]):
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self.pool.close()
        if not sending.cancelled():
            sending.result()
        if self._failure is not None:
            raise self._failure

    async def _open(self) -> None:
        """Every request has its task, so that none waits for another."""
        assert self.pacing.arrivals is not None
        for index, arrival in enumerate(self.pacing.arrivals):
            intended = self.start + arrival.at
            if self._over(intended):
                if intended >= self._end_of_time():  # the window is over when its time is, not at the last request
                    await asyncio.sleep(max(0.0, self._end_of_time() - clock()))
                break
            request, asked = self.request(index, arrival.input_tokens, arrival.output_tokens)  # before it is due
            await asyncio.sleep(max(0.0, intended - clock()))
            self._begin(self._send(self._sample(intended, asked), request))

    async def _closed(self) -> None:
        indices = itertools.count()
        clients = [self._begin(self._client(indices)) for _ in range(self.pacing.clients)]
        left = None if self.pacing.duration_s is None else max(0.0, self._end_of_time() - clock())
        await asyncio.wait(clients, timeout=left)

    async def _client(self, indices: Iterator[int]) -> None:
        """Sends the next request when the last has ended; a refused one first waits as told."""
        while not self._over(intended := clock()):
            request, asked = self.request(next(indices), None, None)
            sample = self._sample(intended, asked)
            await self._send(sample, request)
            last = sample.tries[-1]
            if not last.accepted:
                await asyncio.sleep(max(0.0, min(_told(last), self._end_of_time() - clock())))

    def _begin(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.create_task(work)
        self._under_way.add(task)
        task.add_done_callback(self._finished)
        return task

    def _finished(self, task: "asyncio.Task[None]") -> None:
        self._under_way.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failure = error  # of this program, not of the server
            self.stop()

    def _sample(self, intended: float, asked: int) -> Sample:
        measured = intended >= self.start + self.pacing.warmup_s
        sample = Sample(intended, asked, measured)
        self.samples.append(sample)
        self.sent += measured
        return sample

    def _over(self, intended: float) -> bool:
        if self.pacing.requests is not None and self.sent >= self.pacing.requests:
            return True
        return intended >= self._end_of_time()

    def _end_of_time(self) -> float:
        duration = self.pacing.duration_s
        return float("inf") if duration is None else self.start + self.pacing.warmup_s + duration

    async def _send(self, sample: Sample, request: bytes) -> None:
        intended = sample.intended
        try:
            for number in range(1 + self.pacing.retries):
                attempt = Try(intended, chat=self.chat)
                sample.tries.append(attempt)
                await self.pool.send(request, attempt, self.pacing.timeout_s)
                if not attempt.refused or number == self.pacing.retries:
                    break
                intended = attempt.ended + _told(attempt)
                await asyncio.sleep(max(0.0, intended - clock()))
        except asyncio.CancelledError:
            sample.cut_off = True
            raise
        finally:
            self.tally[sample.outcome] += 1

    async def _tick(self) -> None:
        """How late this loop answers a timer is how late it may time an answer."""
        while True:
            due = clock() + TICK_S
            await asyncio.sleep(TICK_S)
            self.ticks.append(max(0.0, clock() - due))


def _told(attempt: Try) -> float:
    return BLIND_WAIT_S if attempt.retry_after_s is None else attempt.retry_after_s


def make_request(workload: Workload, head: bytes) -> Callable[[int, int | None, int | None], tuple[bytes, int]]:
    """`head`: the request line and the headers that never change."""

    def request(index: int, input_tokens: int | None, output_tokens: int | None) -> tuple[bytes, int]:
        body, asked = workload.body(index, input_tokens, output_tokens)
        return b"%sContent-Length: %d\r\n\r\n%s" % (head, len(body), body), asked

    return request
