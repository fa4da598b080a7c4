"""Templates and tokenises off the event loop, in micro-batches."""

import asyncio
import sys
from array import array
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from headway.core.errors import HeadwayError
from headway.core.priority import yield_to_streams
from headway.serving.prompts import PromptEncoder
from headway.serving.request import Prompt

# A thread that runs Python code gives the interpreter up this soon; the default 5 ms is felt in every stream.
SWITCH_INTERVAL_S = 0.0005
LONG_PROMPT = 65_536  # characters; from here on tokenising takes so long that short prompts must not wait for it
MAX_BATCH = 64


class TextPool:
    """One thread for short prompts and one for long ones; each takes at once all that queued up meanwhile."""

    def __init__(self, encoder: PromptEncoder) -> None:
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        self._short = _Lane(encoder, "text", MAX_BATCH)
        self._long = _Lane(encoder, "long-text", 1, yield_to_streams)  # a megabyte takes a core for most of a second

    async def encode(self, prompt: Prompt) -> "array[int]":
        """Token ids as array('I'). Raises what the template or the tokenizer objects to."""
        lane = self._long if prompt.size >= LONG_PROMPT else self._short
        return await lane.encode(prompt)

    def close(self) -> None:
        self._short.close()
        self._long.close()


class _Lane:
    def __init__(
        self, encoder: PromptEncoder, name: str, max_batch: int, initializer: Callable[[], None] | None = None
    ) -> None:
        self._encoder = encoder
        self._max_batch = max_batch
        self._executor = ThreadPoolExecutor(1, thread_name_prefix=name, initializer=initializer)
        self._waiting: list[tuple[Prompt, asyncio.Future[array[int]]]] = []
        self._busy = False

    def encode(self, prompt: Prompt) -> "asyncio.Future[array[int]]":
        future: asyncio.Future[array[int]] = asyncio.get_running_loop().create_future()
        self._waiting.append((prompt, future))
        self._next()
        return future

    def _next(self) -> None:
        if self._busy:
            return
        waiting = [item for item in self._waiting if not item[1].done()]  # a client that left needs no tokens
        batch, self._waiting = waiting[: self._max_batch], waiting[self._max_batch :]
        if not batch:
            return
        self._busy = True
        work = asyncio.get_running_loop().run_in_executor(
            self._executor, self._encoder.encode, [prompt for prompt, _ in batch]
        )
        work.add_done_callback(partial(self._finish, [future for _, future in batch]))

    def _finish(
        self,
        futures: "list[asyncio.Future[array[int]]]",
        work: "asyncio.Future[list[array[int] | HeadwayError]]",
    ) -> None:
        self._busy = False
        error = work.exception() if not work.cancelled() else asyncio.CancelledError()
        results = [error] * len(futures) if error is not None else work.result()
        for future, result in zip(futures, results, strict=True):
            if future.done():
                continue
            if isinstance(result, BaseException):
                future.set_exception(result)
            else:
                future.set_result(result)
        self._next()

    def close(self) -> None:
        self._executor.shutdown(wait=False, cancel_futures=True)
