"""Talks with the engine in this process."""

import signal
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from types import FrameType, TracebackType
from typing import Self

from headway.cli.talk import Messages
from headway.core.config import Settings
from headway.offline.llm import LLM, Params


class LocalTalker:
    """Owns the engine."""

    def __init__(self, settings: Settings, params: Params) -> None:
        """One sequence at a time needs no more runner state than that."""
        engine = settings.engine.model_copy(update={"max_sequences": 1})
        self._llm = LLM(settings=settings.model_copy(update={"engine": engine}))
        self._params = params

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._llm.close()

    def stream(self, messages: Messages) -> Generator[str, None, None]:
        with _interrupts() as caught, closing(self._llm.stream(messages, self._params)) as pieces:
            for piece in pieces:
                yield piece
                if caught:
                    raise KeyboardInterrupt


@contextmanager
def _interrupts() -> Iterator[list[int]]:
    """A list that is empty until Ctrl-C; a step is never interrupted in its middle."""
    caught: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        caught.append(number)

    before = signal.signal(signal.SIGINT, note)
    try:
        yield caught
    finally:
        signal.signal(signal.SIGINT, before)
