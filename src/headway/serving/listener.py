"""Sockets that a parent binds and its children listen on."""

import socket

BACKLOG = 2048


def listen(host: str, port: int) -> socket.socket:
    """A bound, listening socket that children can inherit. Raises OSError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.create_server((host, port), family=family, backlog=BACKLOG)
    listener.set_inheritable(True)
    return listener


def url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
