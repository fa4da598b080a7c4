"""Where the engine's socket lives; the one place that knows which transports a platform has."""

import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def engine_address() -> Iterator[str]:
    """A fresh ZeroMQ address for one server; the private folder behind it goes away afterwards."""
    if os.name == "nt":  # no ipc:// there
        yield f"tcp://127.0.0.1:{_free_port()}"
        return
    folder = Path(tempfile.mkdtemp(prefix="headway-"))  # mode 0700: only this user can connect
    try:
        yield f"ipc://{folder}/engine"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
