"""An API worker's process: uvicorn on the inherited listening socket."""

import asyncio
import os
import signal
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import uvicorn
import uvloop

from headway.core.config import Settings
from headway.core.errors import ModelError
from headway.delivery.app import create_app
from headway.delivery.connection_limits import ConnectionLimits, ServerConfig
from headway.delivery.connections import connect, raise_open_files
from headway.delivery.websocket_protocol import WebSocketProtocol
from headway.serving.child import CONVICTED, ENGINE_AWAY, ENGINE_DIED, POISONED, Absence, Child
from headway.serving.frontend import Frontend, load_frontend

READY_POLL_S = 0.02
PONG_S = 20.0  # a WebSocket's client that does not answer a ping for so long is gone
CLOSE_S = 3  # what uvicorn gives connections to close after the drain


class Server(uvicorn.Server):
    """uvicorn without its own signal handling: a signal starts the drain first."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def make_server(
    frontend: Frontend, settings: Settings, peers: Sequence[int] = (), connections: int | None = None
) -> Server:
    """`peers`: as for create_app; `connections`: the most of them, where it is less than the settings'."""
    config = ServerConfig(
        create_app(frontend, settings, peers),
        ConnectionLimits.of(settings.server, connections),
        loop="uvloop",
        http=connect,
        ws=WebSocketProtocol,
        ws_max_size=settings.server.max_body_bytes,
        ws_ping_interval=settings.server.keep_alive_s,
        ws_ping_timeout=PONG_S,
        ws_per_message_deflate=False,  # of events one by one it costs more than it saves
        lifespan="on",
        access_log=False,
        log_config=None,
        log_level="warning",
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=settings.server.idle_connection_s,
        timeout_graceful_shutdown=CLOSE_S,
    )
    return Server(config)


async def serve(frontend: Frontend, child: Child) -> None:
    """Until SIGTERM, and then until the drain is over."""
    loop = asyncio.get_running_loop()
    spec, settings = child.spec, child.spec.settings
    connections = raise_open_files(settings.server.max_connections)
    server = make_server(frontend, settings, spec.peers, connections)
    listeners = [socket.socket(fileno=fd) for fd in (spec.listen_fd, spec.peer_fd) if fd >= 0]
    stopping = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stopping.set)

    def tell_poison(what: str) -> None:
        child.tell(f"{POISONED} {what}")

    def command(line: str) -> None:
        word, _, rest = line.partition(" ")
        if word == ENGINE_DIED:
            loop.call_soon_threadsafe(frontend.engine_died, rest)
        elif word == CONVICTED:
            loop.call_soon_threadsafe(frontend.convicted, int(rest), tell_poison)
        elif word == POISONED:
            what, until = rest.split()
            loop.call_soon_threadsafe(frontend.poisoned, what, float(until))
        elif word == ENGINE_AWAY:
            loop.call_soon_threadsafe(frontend.engine_away, Absence.from_json(rest))

    async def announce() -> None:
        while not server.started or frontend.trouble() is not None:  # noqa: ASYNC110  uvicorn has no event for it
            await asyncio.sleep(READY_POLL_S)
        child.ready()

    async def drain() -> None:
        await stopping.wait()
        await frontend.drain(settings.server.drain_s)
        server.should_exit = True

    for what, until in spec.poison:
        frontend.poisoned(what, until)
    child.on_command(command)
    helpers = [asyncio.create_task(announce()), asyncio.create_task(drain())]
    try:
        await server.serve(sockets=listeners)
    finally:
        for helper in helpers:
            helper.cancel()


def main() -> None:
    # The tokenizer's own threads would compete with the engine's for the same cores.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    child = Child.start()
    spec = child.spec
    folder = Path(spec.metrics_dir) if spec.metrics_dir else None
    try:
        frontend = load_frontend(spec.settings, spec.address, spec.worker, spec.life, folder)
    except ModelError as error:
        child.fail(error.message)
    uvloop.run(serve(frontend, child))


if __name__ == "__main__":
    main()
