"""Servers on real sockets, and time that passes only when told to."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "wire"))

from script_server import Reply, Script, script_server

from headway.client import ClientError, Timing
from headway.core.clock import ManualClock


@dataclass
class Time:
    """Sleeping moves the clock and takes none."""

    clock: ManualClock = field(default_factory=ManualClock)
    slept: list[float] = field(default_factory=list)
    told: list[tuple[float, ClientError]] = field(default_factory=list)

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.clock.advance(seconds)

    @property
    def timing(self) -> Timing:
        return Timing(self.clock, self.sleep, lambda seconds, reason: self.told.append((seconds, reason)))


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def serve() -> Iterator[Callable[..., Script]]:
    """`serve(reply, ...)`: a server that gives these answers, one after the other."""
    with ExitStack() as stack:

        def start(*replies: Reply) -> Script:
            given: Sequence[Reply] = replies
            return stack.enter_context(script_server(given))

        yield start
