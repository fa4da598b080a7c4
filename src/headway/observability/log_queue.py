"""The log's way to stderr: through a bounded queue, so that nobody who logs waits for who reads, such as a pipe that
nobody empties. Lines that find it full are dropped and counted."""

import io
import logging
import os
import queue
import select
import sys
import threading
import time
import traceback
from typing import Any

MOST = 4096  # lines
LAST_S = 1.0  # that what is left has, when the process ends
STDERR = 2


class LogQueue(logging.Handler):
    """Writes to a file descriptor, in a thread of its own."""

    def __init__(self, fd: int = STDERR, most: int = MOST) -> None:
        super().__init__()
        self._fd = fd
        self._lines: queue.Queue[bytes] = queue.Queue(most)
        self._putting = threading.Lock()
        self._dropped = 0  # since the last one that was not
        threading.Thread(target=self._run, name="log", daemon=True).start()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self.format(record) + "\n"
        except Exception:  # its arguments do not fit
            line = traceback.format_exc()
        self.write(line.encode(errors="backslashreplace"))

    def write(self, text: bytes) -> None:
        with self._putting:
            told = b"(%d lines were dropped, for the log was not read)\n" % self._dropped if self._dropped else b""
            try:
                self._lines.put_nowait(told + text)
            except queue.Full:
                self._dropped += 1
            else:
                self._dropped = 0

    def flush(self) -> None:
        """Waits a little for what is queued to be written; `logging` calls it when the process ends."""
        with self._lines.all_tasks_done:
            self._lines.all_tasks_done.wait_for(lambda: not self._lines.unfinished_tasks, LAST_S)

    def _run(self) -> None:
        while True:
            rest = self._lines.get()
            while rest:
                try:
                    rest = rest[os.write(self._fd, rest) :]
                except BlockingIOError:  # whoever shares it does not want to wait
                    select.select([], [self._fd], [], None)
                except OSError:  # nobody will ever read it
                    time.sleep(LAST_S)
                    break
            self._lines.task_done()


class _Stderr(io.RawIOBase):
    """Has what libraries print, warnings and tracebacks take the same way."""

    def __init__(self, lines: LogQueue) -> None:
        self._lines = lines

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._lines.write(text := bytes(data))
        return len(text)

    def fileno(self) -> int:
        return STDERR


def start_log() -> None:
    """Sends the process's log, and all that it prints to stderr, through a queue."""
    lines = LogQueue()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s", handlers=[lines])
    sys.stderr = io.TextIOWrapper(io.BufferedWriter(_Stderr(lines)), errors="backslashreplace", line_buffering=True)
