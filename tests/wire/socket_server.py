"""Small servers on real sockets, each on an event loop in a thread of its own."""

import asyncio
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@contextmanager
def serving(handler: Handler) -> Iterator[int]:
    """The port on which `handler` is given every connection. It closes them; at the end the rest is aborted."""
    loop = asyncio.new_event_loop()
    tasks: set[asyncio.Task[None]] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await handler(reader, writer)
        except (OSError, EOFError):
            pass  # the other side is gone
        finally:
            tasks.discard(task)
            writer.transport.abort()

    async def stop() -> None:
        server.close()
        own = {asyncio.current_task()}
        while others := asyncio.all_tasks() - own:  # connections that were just accepted begin first
            for task in tasks:
                task.cancel()
            await asyncio.wait(others, timeout=0.05)
        await asyncio.sleep(0)  # transports close

    thread = threading.Thread(target=loop.run_forever, name="socket server")
    thread.start()
    start = asyncio.start_server(handle, "127.0.0.1", 0, backlog=512)
    server = asyncio.run_coroutine_threadsafe(start, loop).result(10)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        asyncio.run_coroutine_threadsafe(stop(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


async def finish(writer: asyncio.StreamWriter) -> None:
    """Sends what is buffered, then FIN; returns when the other side has closed or after a second."""
    await writer.drain()
    writer.write_eof()


def reset(writer: asyncio.StreamWriter) -> None:
    """RST instead of FIN."""
    sock = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    writer.transport.abort()
