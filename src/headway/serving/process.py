"""A child process as its parent sees it: everything that happens to it arrives in one queue."""

import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from headway.serving.child import POISONED, READY, SETTINGS, ProcessSpec

# Before a start, by how many lives before it were fruitless.
PAUSES_S = (0.0, 0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0)
HANGUP: signal.Signals | None = getattr(signal, "SIGHUP", None)  # Windows has none


@dataclass(frozen=True, slots=True)
class Ready:
    process: "Process"


@dataclass(frozen=True, slots=True)
class Exited:
    process: "Process"
    code: int


@dataclass(frozen=True, slots=True)
class Signalled:
    number: int


@dataclass(frozen=True, slots=True)
class SettingsTold:
    """The engine's live settings have changed."""

    json: str


@dataclass(frozen=True, slots=True)
class PoisonTold:
    """An API worker says what it was that engines died of."""

    fingerprint: str


@dataclass(frozen=True, slots=True)
class ReloadAsked:
    pass


Happening = Ready | Exited | Signalled | SettingsTold | PoisonTold | ReloadAsked


class Process:
    """One child. A thread reads its stdout, so that everything it does arrives in one queue."""

    def __init__(self, name: str, module: str, spec: ProcessSpec, happenings: "queue.SimpleQueue[Happening]") -> None:
        self.name = name
        self._happenings = happenings
        with _no_hangup():
            self._popen = subprocess.Popen(
                [sys.executable, "-m", "headway.serving.child_start", module],
                env={"OPENBLAS_NUM_THREADS": "1", **os.environ},  # numpy's own threads, for which there is no work
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                pass_fds=[fd for fd in (spec.listen_fd, spec.peer_fd) if fd >= 0],
                process_group=0,  # Ctrl-C is for the parent, which passes it on in its own way
            )
        self.alive = True
        self.command(spec.to_json())
        threading.Thread(target=self._watch, name=name, daemon=True).start()

    def command(self, line: str) -> None:
        assert self._popen.stdin is not None
        try:
            self._popen.stdin.write(line + "\n")
            self._popen.stdin.flush()
        except BrokenPipeError:
            pass  # it is gone, and _watch says so

    def _watch(self) -> None:
        assert self._popen.stdout is not None
        for line in self._popen.stdout:
            word, _, rest = line.rstrip("\n").partition(" ")
            if word == READY:
                self._happenings.put(Ready(self))
            elif word == SETTINGS:
                self._happenings.put(SettingsTold(rest))
            elif word == POISONED:
                self._happenings.put(PoisonTold(rest))
            else:
                sys.stderr.write(line)  # some library has printed
        self._happenings.put(Exited(self, self._popen.wait()))

    def signal(self, number: int) -> None:
        if self.alive:
            self._popen.send_signal(number)


class Post:
    """One place for a child: who holds it now, and when the next one starts if nobody does."""

    def __init__(self, module: str, spec: ProcessSpec) -> None:
        self.module = module
        self.spec = spec
        self.process: Process | None = None
        self.begun = 0.0
        self.due: float | None = None  # when it is to be started
        self.fruitless = 0  # lives in a row that brought nothing

    def fell(self, fruitful: bool) -> float:
        """Its holder has ended. Seconds until the next one starts."""
        self.fruitless = 0 if fruitful else self.fruitless + 1
        pause = PAUSES_S[min(self.fruitless, len(PAUSES_S) - 1)]
        self.due = time.monotonic() + pause
        return pause


@contextmanager
def _no_hangup() -> Iterator[None]:
    """Children that start inside never see SIGHUP: whoever sends it to all of a service means a reload, which is the
    parent's to do, and its default is death."""
    if HANGUP is None:
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {HANGUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def describe(code: int) -> str:
    """An exit code in words."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"
