"""The parent process: binds the port, starts the engine and the API workers, watches them, starts anew what dies or
hangs, and passes signals on.

It owns no requests, and imports neither web framework nor numpy, so that nothing a request does can harm it.
"""

import json
import logging
import queue
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from headway.core.config import LIVE, Settings, problems, with_changes
from headway.core.live_settings import differences, live_json
from headway.core.request import worker_of
from headway.serving.address import engine_address
from headway.serving.child import CONVICTED, ENGINE_AWAY, ENGINE_DIED, POISONED, RELOAD, Absence, ProcessSpec
from headway.serving.inquest import Inquest
from headway.serving.listener import listen, url
from headway.serving.poison import REFUSED_S, Poison
from headway.serving.process import (
    HANGUP,
    Exited,
    Happening,
    PoisonTold,
    Post,
    Process,
    Ready,
    ReloadAsked,
    SettingsTold,
    Signalled,
    describe,
)
from headway.serving.step_board import StepBoard

log = logging.getLogger(__name__)

ECHO_S = 0.3  # `timeout` and shells signal a process and its group: the same signal, told twice
EXIT_GRACE_S = 5.0  # beyond the drain time, before a child is killed
LOOK_S = 0.1  # between two looks whether the engine hangs
FRUITFUL_S = 10.0  # an API worker that has lived for so long has not died of its start


class Supervisor:
    """`run` serves until a signal, and returns the exit code. What ends before all were ready ends the server."""

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
        self._posts: list[Post] = []  # the engine's is the first
        self._inquest = Inquest()
        self._poison = Poison()
        self._ready: set[Process] = set()
        self._exit_code = 0

    @property
    def _engine(self) -> Post:
        return self._posts[0]

    @property
    def _workers(self) -> list[Process]:
        return [post.process for post in self._posts[1:] if post.process is not None and post.process.alive]

    @property
    def _children(self) -> list[Process]:
        return [p.process for p in self._posts if p.process is not None and p.process.alive]

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
            self._listener = listener
            address = stack.enter_context(engine_address())
            shared = server.api_workers > 1
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="headway-"))
            board = Path(folder) / "board"
            self._board = StepBoard.make(board)
            stack.callback(self._board.close)
            metrics = folder if shared else None
            spec = ProcessSpec(self._settings, address, epoch=1, metrics_dir=metrics, board=str(board))
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
        self._posts = [Post(self._engine_module, spec)]
        count = self._settings.server.api_workers
        peers = [stack.enter_context(listen("127.0.0.1", 0)) for _ in range(count)] if count > 1 else []
        spec = replace(spec, listen_fd=listener.fileno(), peers=tuple(peer.getsockname()[1] for peer in peers))
        for index in range(count):
            worker = replace(spec, worker=index, peer_fd=peers[index].fileno() if peers else -1)
            self._posts.append(Post(self._api_module, worker))
        for post in self._posts:
            self._fill(post)

    def _fill(self, post: Post) -> None:
        """Starts a child."""
        engine = post is self._engine
        if engine:
            self._board.clear()
        name = "engine" if engine else f"API worker {post.spec.worker}"
        post.due, post.begun = None, time.monotonic()
        poison = () if engine else self._poison.known(post.begun)
        spec = replace(post.spec, settings=self._settings, poison=poison)
        post.process = Process(name, post.module, spec, self._happenings)

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
        looked = time.monotonic()
        while True:
            happening = self._next(looked + LOOK_S)
            if isinstance(happening, Signalled):
                self._ends(happening)
                break
            if isinstance(happening, Exited):
                self._fell(happening)
            if self._reload_due:
                self._reload_due = False
                self._reload()
            now = time.monotonic()
            if now >= looked + LOOK_S:
                self._look(now, pause=now - looked)
                looked = now
        self._shut_down()

    def _look(self, now: float, pause: float) -> None:
        """Starts who is due, and kills an engine that hangs. After a `pause` in which this process itself did not run,
        the others may not have run either."""
        engine = self._engine.process
        for post in self._posts:
            if post.due is not None and now >= post.due:
                self._fill(post)
        if engine is None or not engine.alive or pause > 5 * LOOK_S:
            return
        if engine not in self._ready:
            late, what = now - self._engine.begun - self._settings.server.start_s, "is not ready"
        else:
            late, what = self._board.overdue(now), "gives no sign of life"
        if late > 0:
            log.error("the engine %s; it is killed", what)
            engine.signal(signal.SIGKILL)
            self._ready.discard(engine)  # once is enough

    def _inquire(self) -> None:
        """Who was in the step that the engine died in?"""
        board = self._board
        convicted = self._inquest.died(board.members, board.ward - 1, board.watched)
        if convicted is None:
            return
        log.error("engines died twice while they computed nothing but request %d: it is given up", convicted)
        for post in self._posts[1:]:
            if post.spec.worker == worker_of(convicted) and post.process is not None and post.process.alive:
                post.process.command(f"{CONVICTED} {convicted}")

    def _fell(self, exited: Exited) -> None:
        """A child has ended by itself, and will be started anew."""
        post = next((p for p in self._posts if p.process is exited.process), None)
        if post is None:
            return
        why = describe(exited.code)
        if post is self._engine:
            fruitful = self._board.steps > 0
            pause = post.fell(fruitful)
            absence = Absence(post.spec.epoch, why, pause, not fruitful)
            self._inquire()
            post.spec = replace(post.spec, epoch=post.spec.epoch + 1, suspects=self._inquest.groups)
            self._tell_workers(f"{ENGINE_AWAY} {absence.to_json()}")
        else:
            pause = post.fell(time.monotonic() - post.begun > FRUITFUL_S)
            post.spec = replace(post.spec, life=post.spec.life + 1)
        again = f"again in {pause:g} s" if pause else "again"
        log.error("the %s has ended (%s); it is started %s", exited.process.name, why, again)
        if not pause:
            self._fill(post)

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
        engine = self._engine.process
        if engine is not None and engine.alive:
            engine.command(f"{RELOAD} {live_json(settings)}")
        else:  # the next one starts with them
            self._settings = with_changes(self._settings, json.loads(live_json(settings)))

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
        elif isinstance(happening, SettingsTold):
            self._settings = with_changes(self._settings, json.loads(happening.json))
        elif isinstance(happening, PoisonTold):
            until = time.monotonic() + REFUSED_S
            self._poison.add(happening.fingerprint, until)
            self._tell_workers(f"{POISONED} {happening.fingerprint} {until}")
        elif isinstance(happening, ReloadAsked):
            self._reload_due = True  # during start-up: as soon as the server is ready
        return happening

    def _ends(self, happening: Happening | None) -> bool:
        """Whether this is the end of serving, at start and at shutdown: a child that dies takes the rest with it, and
        the exit code is 1."""
        if isinstance(happening, Signalled):
            log.info("%s: shutting down", signal.Signals(happening.number).name)
            return True
        if isinstance(happening, Exited):
            why = describe(happening.code)
            log.error("the %s has ended (%s); shutting down", happening.process.name, why)
            self._exit_code = 1
            if happening.process is self._engine.process:
                self._tell_workers(f"{ENGINE_DIED} {why}")
            return True
        return False

    def _tell_workers(self, command: str) -> None:
        for worker in self._workers:
            worker.command(command)

    def _shut_down(self) -> None:
        """API workers drain first, and an engine that dies meanwhile is started again for them; then the engine stops.
        A second signal, or too much time, ends it at once."""
        begin = time.monotonic()
        end = begin + self._settings.server.drain_s + EXIT_GRACE_S
        self._listener.close()  # API workers have their own: nobody is left waiting here when they stop
        for post in self._posts[1:]:
            post.due = None  # who is away has nothing to drain
        for workers in (True, False):
            for process in self._workers if workers else self._children:
                process.signal(signal.SIGTERM)
            while self._workers if workers else self._children:
                happening = self._next(min(end, time.monotonic() + LOOK_S))
                now = time.monotonic()
                if now >= end or (isinstance(happening, Signalled) and now - begin > ECHO_S):
                    log.warning("ending at once")
                    self._exit_code = self._exit_code or 1
                    return
                if workers and isinstance(happening, Exited) and happening.process is self._engine.process:
                    self._fell(happening)
                if workers:
                    self._look(now, pause=0.0)

    def _kill(self) -> None:
        for process in self._children:
            process.signal(signal.SIGKILL)
