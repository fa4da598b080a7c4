"""A TCP proxy that cuts connections, each after a random number of bytes of the server's."""

import asyncio
import random
from collections.abc import Iterator
from contextlib import contextmanager

from socket_server import finish, reset, serving

CONNECT_S = 10
READ = 65536


class Cuts:
    """The k-th connection is cut after as many bytes as the k-th number of a generator seeded with `seed` says: up to
    `most`. Half of the cuts are RST, half FIN."""

    def __init__(self, seed: int, most: int) -> None:
        self.made = 0  # so far
        self._random = random.Random(seed)
        self._most = most

    def next(self) -> tuple[int, bool]:
        """Bytes until the cut, and whether it is a reset."""
        return self._random.randint(0, self._most), self._random.random() < 0.5


@contextmanager
def cutting_proxy(port: int, cuts: Cuts) -> Iterator[int]:
    """The port of a proxy for `port`."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        left, by_reset = cuts.next()
        async with asyncio.timeout(CONNECT_S):
            server_reader, server_writer = await asyncio.open_connection("127.0.0.1", port)
        upstream = asyncio.create_task(_copy(reader, server_writer))
        try:
            while data := await server_reader.read(READ):
                if len(data) >= left:
                    cuts.made += 1
                    writer.write(data[:left])
                    if by_reset:
                        reset(writer)
                    else:
                        await finish(writer)
                    return
                left -= len(data)
                writer.write(data)
                await writer.drain()
            await finish(writer)
        finally:
            server_writer.transport.abort()  # as the server sees it when its client is gone
            upstream.cancel()
            await asyncio.wait((upstream,))

    with serving(handle) as own:
        yield own


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(READ):
            writer.write(data)
            await writer.drain()
        writer.write_eof()
    except OSError:
        pass
