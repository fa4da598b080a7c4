"""Answers on the terminal: one, or a conversation."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from headway.core.config import Settings
from headway.core.errors import HeadwayError, InvalidRequest
from headway.offline.llm import LLM, Params


def open_llm(settings: Settings) -> LLM:
    """One sequence at a time needs no more runner state than that."""
    engine = settings.engine.model_copy(update={"max_sequences": 1})
    return LLM(settings=settings.model_copy(update={"engine": engine}))


def answer(llm: LLM, messages: list[dict[str, str]], params: Params) -> tuple[str, bool]:
    """Streams the answer to stdout; its text, and whether Ctrl-C cut it short."""
    text = ""
    with _interrupts() as stopped:
        for piece in llm.stream(messages, params):
            text += piece
            print(piece, end="", flush=True)
            if stopped:
                break
    print()
    return text, bool(stopped)


def converse(llm: LLM, system: str | None, params: Params) -> None:
    """Until the end of input. An answer that was cut short stays in the conversation as far as it got."""
    opening = [{"role": "system", "content": system}] if system else []
    messages = list(opening)
    print("Ask away. Ctrl-C stops an answer, /new begins anew, /exit or Ctrl-D ends.", file=sys.stderr)
    while (line := _ask()) is not None:
        if line == "/exit":
            return
        if line == "/new":
            messages = list(opening)
            continue
        if not line:
            continue
        messages.append({"role": "user", "content": line})
        try:
            text, _ = answer(llm, messages, params)
        except InvalidRequest as error:
            print(f"headway: {error.message} (/new begins anew)", file=sys.stderr)
            messages.pop()
        except HeadwayError as error:
            print(f"headway: {error.message}", file=sys.stderr)
            messages.pop()
        else:
            messages.append({"role": "assistant", "content": text})


def _ask() -> str | None:
    """The next line; None at the end of input. Ctrl-C while typing only drops the line."""
    while True:
        try:
            return input("> ").strip()
        except EOFError:
            print()
            return None
        except KeyboardInterrupt:
            print()


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
