"""Answers on the terminal: one, or a conversation."""

import sys
from collections.abc import Generator
from contextlib import closing
from typing import Protocol

from headway.core.errors import HeadwayError, InvalidRequest

Messages = list[dict[str, str]]


class Talker(Protocol):
    """Whoever answers. Closing the generator stops the answer; Ctrl-C comes out of it as KeyboardInterrupt, where that
    does no harm."""

    def stream(self, messages: Messages) -> Generator[str, None, None]: ...


def answer(talker: Talker, messages: Messages) -> str:
    """Streams the answer to stdout until it ends or Ctrl-C cuts it short; its text."""
    text = ""
    try:
        with closing(talker.stream(messages)) as pieces:
            for piece in pieces:
                text += piece
                print(piece, end="", flush=True)
    except KeyboardInterrupt:
        pass
    except HeadwayError:
        if text:
            print()  # what is said about it begins a line
        raise
    print()
    return text


def converse(talker: Talker, system: str | None) -> None:
    """Until the end of input. An answer that was cut short stays in the conversation as far as it got."""
    opening: Messages = [{"role": "system", "content": system}] if system else []
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
            text = answer(talker, messages)
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
