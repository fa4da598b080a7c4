"""A `headway serve` of its own for each benchmark."""

import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import IO, Any

READY = "Headway is ready on "
START_S = 120.0
STOP_S = 45.0  # more than server.drain_s


class Server:
    """Runs while the `with` block does, in an empty folder and with default settings but for `args` and `config`."""

    def __init__(self, *args: str, config: str = "", key: str | None = None, script: Path | None = None) -> None:
        """`config`: the text of a headway.toml. `key`: an API key of it, to ask for the model's name. `script`: serves
        in place of `headway serve`."""
        self._args, self._config, self._key, self._script = args, config, key, script
        self.url = ""
        self.model = ""

    def __enter__(self) -> "Server":
        self._folder = tempfile.TemporaryDirectory(prefix="headway-benchmark-")
        folder = Path(self._folder.name)
        (folder / "headway.toml").write_text(self._config)
        self._log = (folder / "log").open("w+")
        settings = {k: v for k, v in os.environ.items() if not k.startswith("HEADWAY_") or k == "HEADWAY_ISA"}
        headway = [str(Path(sys.executable).with_name("headway")), "serve", "--port", "0"]
        command = [*(headway if self._script is None else [sys.executable, str(self._script)]), *self._args]
        print(f"starting {' '.join(command)} ...", file=sys.stderr, flush=True)
        self._process = subprocess.Popen(
            command, cwd=folder, env=settings, stdout=subprocess.PIPE, stderr=self._log, text=True
        )
        try:
            self.url = self._wait_ready()
            self.model = self._get("/v1/models")["data"][0]["id"]
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def metrics(self) -> dict[str, float]:
        """Counters and gauges by name; labelled ones are left out."""
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=10) as answer:
            return parse_metrics(answer.read().decode())

    def worker(self) -> int:
        """The process id of its first API worker."""
        parent = self._process.pid
        for child in map(int, Path(f"/proc/{parent}/task/{parent}/children").read_text().split()):
            if b"headway.delivery.api_process" in Path(f"/proc/{child}/cmdline").read_bytes():
                return child
        raise RuntimeError("the server has no API worker")

    def _get(self, path: str) -> Any:
        headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        with urllib.request.urlopen(urllib.request.Request(self.url + path, headers=headers), timeout=10) as answer:
            return json.load(answer)

    def _wait_ready(self) -> str:
        """The URL. A thread reads on to the end, so that the server never blocks on its output."""
        assert self._process.stdout is not None
        found: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=_watch, args=(self._process.stdout, found), daemon=True).start()
        try:
            url = found.get(timeout=START_S)
        except queue.Empty:
            url = None
        if url is None:
            self._log.seek(0)
            raise SystemExit(f"the server did not start:\n{self._log.read()[-2000:]}")
        return url

    def _stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()
        self._folder.cleanup()


def _watch(lines: IO[str], found: "queue.Queue[str | None]") -> None:
    for line in lines:
        if line.startswith(READY):
            found.put(line.removeprefix(READY).strip())
    found.put(None)


def parse_metrics(text: str) -> dict[str, float]:
    """Prometheus' text format, without what has labels."""
    lines = (line.split() for line in text.splitlines() if line and not line.startswith("#") and "{" not in line)
    return {fields[0]: float(fields[1]) for fields in lines}
