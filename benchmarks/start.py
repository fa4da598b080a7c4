"""From `headway serve` to the first 200 on /health/ready, and what each process does until then.

    python benchmarks/start.py [--rounds 5] [ARGUMENTS OF SERVE]

The first round packs the weights where no start has done so before; it is shown, and left out of the medians.
"""

import argparse
import contextlib
import http.client
import signal
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path

import psutil

STEP_S = 0.005
PARTS = ("listening", "ready", "parent", "engine", "API")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def connect(port: int) -> http.client.HTTPConnection | None:
    """None while nobody listens."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.connect()
    except OSError:
        return None
    return connection


def is_ready(connection: http.client.HTTPConnection) -> bool:
    with contextlib.closing(connection):
        connection.request("GET", "/health/ready")
        return connection.getresponse().status == 200


def start(arguments: list[str]) -> dict[str, float]:
    """Seconds: until the parent listens, until the server is ready, and of processors in each process by then."""
    port = free_port()
    command = [str(Path(sys.executable).with_name("headway")), "serve", "--port", str(port), *arguments]
    begin = time.monotonic()
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        seconds: dict[str, float] = {}
        while True:
            connection = connect(port)
            if connection is not None:
                seconds.setdefault("listening", time.monotonic() - begin)
                if is_ready(connection):  # waits in the listener's queue until the worker takes it
                    break
            if server.poll() is not None:
                raise SystemExit(f"headway serve ended with {server.returncode}")
            time.sleep(STEP_S)
        seconds["ready"] = time.monotonic() - begin
        parent = psutil.Process(server.pid)
        seconds["parent"] = sum(parent.cpu_times()[:2])
        for child in parent.children():
            name = "engine" if child.cmdline()[-1].endswith("engine_process") else "API"
            seconds[name] = sum(child.cpu_times()[:2])
        return seconds
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    args, arguments = parser.parse_known_args()
    rounds = []
    for index in range(args.rounds + 1):
        rounds.append(start(arguments))
        show("first" if index == 0 else str(index), rounds[-1])
    show("median", {part: statistics.median(r[part] for r in rounds[1:]) for part in rounds[0]})


def show(name: str, seconds: dict[str, float]) -> None:
    print(f"{name:7}" + "  ".join(f"{part} {seconds[part]:.2f} s" for part in PARTS if part in seconds), flush=True)


if __name__ == "__main__":
    main()
