"""What a child process and its parent say to each other: the contract of supervisor.py, seen from the child.

The parent writes one line of JSON, the ProcessSpec, to the child's stdin, and later one line per Command; the end of
that pipe means that the parent is gone, and then the child goes too, whatever it is doing. The child answers on its
stdout with the line "ready", and the engine with a line for each change of its settings.
"""

import gc
import json
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from typing import NoReturn, Self, TextIO

from headway.core.config import Settings
from headway.observability.log_queue import start_log

log = logging.getLogger(__name__)

READY = "ready"
RELOAD = "reload"  # command to the engine; the rest of the line is the JSON of the live settings
ENGINE_DIED = "engine_died"  # command to API workers; the rest of the line says why
CONVICTED = "convicted"  # command to an API worker: engines died of this request of its
# Line from that worker: the request's fingerprint; then command to all of them, with the time of the refusals' end.
POISONED = "poisoned"
ENGINE_AWAY = "engine_away"  # command to API workers: it is being restarted; the rest of the line is an Absence
SETTINGS = "settings"  # line from the engine; the rest is the JSON of the live settings, which have changed
ORPHANED = 3  # exit code


@dataclass(frozen=True, slots=True)
class Absence:
    """The engine has died and will be started again."""

    epoch: int  # of the dead one
    why: str
    again_s: float  # seconds until that
    fruitless: bool  # no request advanced in its life

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, line: str) -> Self:
        return cls(**json.loads(line))


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    """Everything a child must know."""

    settings: Settings
    address: str  # of the engine's socket
    epoch: int
    worker: int = 0
    life: int = 0  # how often this worker was started before
    board: str | None = None  # path of the engine's StepBoard
    suspects: Sequence[Sequence[tuple[int, int]]] = ()  # that the engine runs apart: see Inquest
    listen_fd: int = -1
    peer_fd: int = -1  # where this worker listens for the others, if there are others
    peers: tuple[int, ...] = ()  # ports of all workers' such sockets, on 127.0.0.1
    metrics_dir: str | None = None  # where workers share their counters, if there are several
    poison: Iterable[tuple[str, float]] = ()  # what API workers refuse: see Poison

    def to_json(self) -> str:
        others = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "settings"}
        return json.dumps({"settings": self.settings.model_dump(mode="json"), **others})

    @classmethod
    def from_json(cls, line: str) -> Self:
        given = json.loads(line)
        given["peers"] = tuple(given["peers"])
        return cls(settings=Settings(**given.pop("settings")), **given)


class Child:
    """A child process's line to its parent."""

    def __init__(self, spec: ProcessSpec, commands: TextIO) -> None:
        self.spec = spec
        self._commands = commands
        self._lock = threading.Lock()
        self._on_command: Callable[[str], None] | None = None
        self._early: list[str] = []  # commands that came before there was somebody to take them

    @classmethod
    def start(cls) -> Self:
        """Reads the spec from stdin, sets up logging and watches the parent."""
        line = sys.stdin.readline()
        if not line:
            os._exit(ORPHANED)
        child = cls(ProcessSpec.from_json(line), sys.stdin)
        start_log()
        return child.watch()

    def watch(self) -> Self:
        threading.Thread(target=self._watch, name="parent", daemon=True).start()
        return self

    def _watch(self) -> None:
        for line in self._commands:
            with self._lock:
                take = self._on_command or self._early.append
                take(line.rstrip("\n"))
        os._exit(ORPHANED)

    def on_command(self, callback: Callable[[str], None]) -> None:
        """`callback` gets each command line, in a thread of its own; those that have come already, at once."""
        with self._lock:
            for line in self._early:
                callback(line)
            self._early.clear()
            self._on_command = callback

    def ready(self) -> None:
        """Tells the parent. What was loaded until now (with the collector off, see child_start) stays for good, so the
        garbage collector need not walk over it again and again: that costs tens of milliseconds, in the middle of a
        stream."""
        gc.collect()
        gc.freeze()
        gc.enable()
        self.tell(READY)

    def tell(self, line: str) -> None:
        """Tells the parent."""
        print(line, flush=True)

    def fail(self, message: str) -> NoReturn:
        """Ends the process with an error that needs no traceback."""
        print(f"headway: {message}", file=sys.stderr, flush=True)
        sys.exit(1)
