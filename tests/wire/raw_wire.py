"""A client that says what it likes on a connection of its own."""

import json
import select
import socket
import time
from collections.abc import Callable

import psutil
from server_rig import Rig

BODY = b'{"prompt":"hi","max_tokens":2}'
POST = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\n"


class Wire:
    def __init__(self, rig: Rig, receive_buffer: int | None = None) -> None:
        self._socket = socket.socket()
        self._socket.settimeout(30)
        if receive_buffer is not None:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self._socket.connect(("127.0.0.1", int(rig.url.rpartition(":")[2])))
        self._file = self._socket.makefile("rb")

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def drip(self, piece: bytes, most: int = 2000, seconds: float = 0.02) -> None:
        """Piece by piece, until the server says something or has closed it."""
        for _ in range(most):
            try:
                self._socket.sendall(piece)
            except OSError:
                return
            if select.select([self._socket], [], [], seconds)[0]:
                return
        raise AssertionError("the server takes all and says nothing")

    def flood(self, piece: bytes, total: int) -> None:
        """Until all is sent, or the server has had enough."""
        try:
            for _ in range(total // len(piece)):
                self._socket.sendall(piece)
        except OSError:
            pass

    def answer(self) -> tuple[int, dict[str, str], bytes]:
        status = int(self._file.readline().split()[1])
        headers = {}
        while (line := self._file.readline().decode().strip()) != "":
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        return status, headers, self._file.read(int(headers["content-length"]))

    def line(self) -> bytes:
        return self._file.readline()

    def take(self, count: int) -> bytes:
        return self._file.read(count)

    def ended(self) -> bool:
        """Waits for what comes next; whether that is the end."""
        try:
            return self._file.read(1) == b""
        except ConnectionResetError:
            return True

    def rest(self) -> bytes:
        """All that comes until the end."""
        return self._file.read()

    def upgraded(self, request: bytes) -> bool:
        self.send(request)
        return self._file.readline().startswith(b"HTTP/1.1 101 ")

    def close(self) -> None:
        self._file.close()
        self._socket.close()


def whole(body: bytes, headers: bytes = b"") -> bytes:
    return POST + headers + b"Content-Length: %d\r\n\r\n" % len(body) + body


def check_refusal(wire: Wire, status: int, code: str) -> None:
    got, headers, body = wire.answer()
    assert got == status and headers["content-type"] == "application/json" and headers["connection"] == "close"
    error = json.loads(body)["error"]
    assert error.keys() == {"message", "type", "param", "code"} and error["code"] == code


def server_ends(rig: Rig) -> int:
    """Connections that the server, which is in this process, has not let go of."""
    port = int(rig.url.rpartition(":")[2])
    found = psutil.Process().net_connections("tcp")
    return sum(c.laddr.port == port and c.status != psutil.CONN_LISTEN for c in found)


def wait_for(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)
