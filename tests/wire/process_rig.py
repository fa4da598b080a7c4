"""A whole server in its real processes (parent, engine on the fake runner, API workers), and a stream in a thread."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
from server_rig import sse

HERE = Path(__file__).parent
SOURCE = HERE.parents[1] / "src"
TEXT = "/v1/completions"


class Server:
    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"http://\S+", line)
        assert found, f"announced {line!r}"
        self.url = found[0]
        self.http = httpx.Client(base_url=self.url, timeout=20)

    def children(self) -> dict[str, int]:
        """Process ids by the last word of the command line: the module. Of several workers, one."""
        return dict(self._processes())

    def pids(self, module: str) -> list[int]:
        return [pid for name, pid in self._processes() if name == module]

    def _processes(self) -> Iterator[tuple[str, int]]:
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
                words = (folder / "cmdline").read_bytes().rstrip(b"\0").split(b"\0")
            except (FileNotFoundError, ProcessLookupError):
                continue
            if parent == self.process.pid:
                yield words[-1].decode(), int(folder.name)

    def signal_engine(self, number: signal.Signals) -> None:
        os.kill(self.children()["fake_engine"], number)

    def metric(self, name: str) -> float:
        found = re.search(rf"^{re.escape(name)} (\S+)$", self.http.get("/metrics").text, re.MULTILINE)
        assert found, name
        return float(found[1])

    def post(self, max_tokens: int = 3, stream: bool = False) -> httpx.Response:
        return self.http.post(TEXT, json={"prompt": "x", "max_tokens": max_tokens, "stream": stream})


@contextmanager
def launch(
    port: int = 0,
    workers: int = 1,
    drain_s: float = 5.0,
    step_s: float = 0.0,
    config: Path | None = None,
    settings: dict[str, Any] | None = None,
    broken: Path | None = None,
    slots: int = 64,
    stderr: int = subprocess.PIPE,
) -> Iterator["subprocess.Popen[str]"]:
    """Its log goes to `stderr` or, with `config`, to a file beside it (`log_of`). `settings` by section; `broken`: no
    engine can be started while there is such a file. `slots`: how many sequences it can run at once."""
    path = os.pathsep.join([str(SOURCE), str(HERE)])
    environment = {
        **os.environ,
        "PYTHONPATH": path,
        "HEADWAY_TEST_STEP_S": str(step_s),
        "HEADWAY_TEST_SETTINGS": json.dumps(settings or {}),
        "HEADWAY_TEST_BROKEN": str(broken or ""),
        "HEADWAY_TEST_SLOTS": str(slots),
    }
    command = [sys.executable, str(HERE / "fake_server.py"), str(port), str(workers), str(drain_s)]
    with ExitStack() as stack:
        log: Any = stderr
        if config is not None:
            command.append(str(config))
            log = stack.enter_context(log_of(config).open("w"))
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment)
        try:
            yield process
        finally:
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()
            if process.stderr is not None:
                process.stderr.close()


def log_of(config: Path) -> Path:
    return config.with_suffix(".log")


@contextmanager
def serving(**options: Any) -> Iterator[Server]:
    """`options` are launch's."""
    with launch(**options) as process:
        server = Server(process)
        try:
            yield server
        finally:
            server.http.close()


def is_running(pid: int) -> bool:
    """Zombies do not run; whether somebody reaps an orphan is not ours to decide."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


class Background:
    """A streamed request in a thread."""

    def __init__(self, server: Server, max_tokens: int, wait: bool = True, **body: Any) -> None:
        """`wait` for its first bytes."""
        self.text = ""
        self.cut = False  # the connection ended in the middle
        self.first = threading.Event()
        body = {"prompt": "x", "max_tokens": max_tokens, "stream": True, **body}
        self._thread = threading.Thread(target=self._run, args=(server, body))
        self._thread.start()
        assert not wait or self.first.wait(10)

    def _run(self, server: Server, body: dict[str, Any]) -> None:
        try:
            with server.http.stream("POST", TEXT, json=body) as response:
                for part in response.iter_text():
                    self.text += part
                    self.first.set()
        except (httpx.RemoteProtocolError, httpx.ReadError):
            self.cut = True

    def result(self, seconds: float = 20.0) -> list[str]:
        self._thread.join(seconds)
        return sse(self.text)
