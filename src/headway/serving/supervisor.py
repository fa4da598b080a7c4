"""The parent process: binds the port, starts the engine and the API workers, watches them, and passes signals on.

It owns no requests, and imports neither web framework nor numpy, so that nothing a request does can harm it.
"""

import logging
import os
import queue
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

from headway.core.config import LIVE, Settings, problems
from headway.core.live_settings import differences, live_json
from headway.serving.address import engine_address
from headway.serving.child import ENGINE_DIED, READY, RELOAD, ProcessSpec
from headway.serving.listener import listen, url

log = logging.getLogger(__name__)

HANGUP: signal.Signals | None = getattr(signal, "SIGHUP", None)  # Windows has none
ECHO_S = 0.3  # `timeout` and shells signal a process and its group: the same signal, told twice
EXIT_GRACE_S = 5.0  # beyond the drain time, before a child is killed


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
class ReloadAsked:
    pass


Happening = Ready | Exited | Signalled | ReloadAsked


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
            if line.rstrip() == READY:
                self._happenings.put(Ready(self))
            else:
                sys.stderr.write(line)  # some library has printed
        self._happenings.put(Exited(self, self._popen.wait()))

    def signal(self, number: int) -> None:
        if self.alive:
            self._popen.send_signal(number)


class Supervisor:
    """`run` serves until a signal or a death, and returns the exit code."""

    def __init__(
        self,
        settings: Settings,
        *,
        engine_module: str,
        api_module: str,
        reload: Callable[[], Settings] | None = None,
    ) -> None:
        """`reload` reads the settings again, for SIGHUP; raises what `load_settings` raises."""
        self._settings = settings
        self._reload_settings = reload
        self._reload_due = False
        self._engine_module = engine_module
        self._api_module = api_module
        self._happenings: queue.SimpleQueue[Happening] = queue.SimpleQueue()
        self._engine: Process | None = None
        self._workers: list[Process] = []
        self._ready: set[Process] = set()
        self._exit_code = 0

    @property
    def _children(self) -> list[Process]:
        return [p for p in (self._engine, *self._workers) if p is not None and p.alive]

    def run(self, announce: Callable[[str], None] = lambda line: print(line, flush=True)) -> int:
        """`announce` gets one line with the URL once the server is ready."""
        server = self._settings.server
        try:
            listener = listen(server.host, server.port)
        except OSError as error:
            print(f"headway: cannot listen on {server.host}:{server.port}: {error.strerror}", file=sys.stderr)
            return 1
        with ExitStack() as stack:
            stack.enter_context(listener)
            address = stack.enter_context(engine_address())
            shared = server.api_workers > 1
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="headway-metrics-")) if shared else None
            spec = ProcessSpec(self._settings, address, epoch=1, metrics_dir=folder)
            stack.enter_context(self._signals())
            try:
                self._start(spec, listener, stack)
                if self._wait_ready():
                    announce(f"Headway is ready on {url(listener)}")
                    self._serve()
            finally:
                self._kill()
        return self._exit_code

    @contextmanager
    def _signals(self) -> Iterator[None]:
        def handle(number: int, frame: object) -> None:
            self._happenings.put(Signalled(number))

        def reload(number: int, frame: object) -> None:
            self._happenings.put(ReloadAsked())

        before = {n: signal.signal(n, handle) for n in (signal.SIGINT, signal.SIGTERM)}
        if HANGUP is not None:
            before[HANGUP] = signal.signal(HANGUP, reload)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _start(self, spec: ProcessSpec, listener: socket.socket, stack: ExitStack) -> None:
        self._engine = Process("engine", self._engine_module, spec, self._happenings)
        count = self._settings.server.api_workers
        peers = [stack.enter_context(listen("127.0.0.1", 0)) for _ in range(count)] if count > 1 else []
        spec = replace(spec, listen_fd=listener.fileno(), peers=tuple(peer.getsockname()[1] for peer in peers))
        for index in range(count):
            worker = replace(spec, worker=index, peer_fd=peers[index].fileno() if peers else -1)
            self._workers.append(Process(f"API worker {index}", self._api_module, worker, self._happenings))

    def _wait_ready(self) -> bool:
        """True when every child is ready; otherwise everything is shut down."""
        end = time.monotonic() + self._settings.server.start_s
        while len(self._ready) < len(self._children):
            happening = self._next(end)
            if happening is None:
                log.error("not ready within %g s (settings.server.start_s)", self._settings.server.start_s)
                self._exit_code = 1
                return False
            if self._ends(happening):
                self._shut_down()
                return False
        return True

    def _serve(self) -> None:
        happening = None
        while not self._ends(happening):
            if self._reload_due:
                self._reload_due = False
                self._reload()
            happening = self._next()
        self._shut_down()

    def _reload(self) -> None:
        """Reads the settings again and hands the live ones to the engine, which tells the workers."""
        if self._reload_settings is None:
            log.warning("SIGHUP: this server has no settings to read again")
            return
        try:
            settings = self._reload_settings()
        except Exception as error:  # whatever it is, the server goes on as it was
            for line in problems(error):
                log.error("SIGHUP: settings not changed: %s", line)
            return
        for name, change in differences(self._settings, settings).items():
            if name.split(".")[0] not in LIVE:
                log.warning("SIGHUP: %s needs a restart (%s)", name, change)
        assert self._engine is not None
        self._engine.command(f"{RELOAD} {live_json(settings)}")

    def _next(self, end: float | None = None) -> Happening | None:
        """The next thing that happens; None once `end` has passed."""
        try:
            happening = self._happenings.get(timeout=None if end is None else max(0.0, end - time.monotonic()))
        except queue.Empty:
            return None
        if isinstance(happening, Ready):
            self._ready.add(happening.process)
        elif isinstance(happening, Exited):
            happening.process.alive = False
        elif isinstance(happening, ReloadAsked):
            self._reload_due = True  # during start-up: as soon as the server is ready
        return happening

    def _ends(self, happening: Happening | None) -> bool:
        """Whether this is the end of serving. A child that dies takes the rest with it, and the exit code is 1."""
        if isinstance(happening, Signalled):
            log.info("%s: shutting down", signal.Signals(happening.number).name)
            return True
        if isinstance(happening, Exited):
            why = describe(happening.code)
            log.error("the %s has ended (%s); shutting down", happening.process.name, why)
            self._exit_code = 1
            if happening.process is self._engine:
                for worker in self._workers:
                    worker.command(f"{ENGINE_DIED} {why}")
            return True
        return False

    def _shut_down(self) -> None:
        """API workers drain first, then the engine stops. A second signal, or too much time, ends it at once."""
        begin = time.monotonic()
        end = begin + self._settings.server.drain_s + EXIT_GRACE_S
        for group in (self._workers, [self._engine] if self._engine else []):
            for process in group:
                process.signal(signal.SIGTERM)
            while any(process.alive for process in group):
                happening = self._next(end)
                again = isinstance(happening, Signalled) and time.monotonic() - begin > ECHO_S
                if happening is None or again:
                    log.warning("ending at once")
                    self._exit_code = self._exit_code or 1
                    return
                if isinstance(happening, Exited) and happening.process is self._engine and group is self._workers:
                    self._ends(happening)

    def _kill(self) -> None:
        for process in self._children:
            process.signal(signal.SIGKILL)


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
