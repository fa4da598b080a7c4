"""Numbers in memory that several API workers can share: a few tens of nanoseconds to change one.

prometheus_client's multiprocess mode costs microseconds per observation, which is too much for one per token.
"""

import mmap
from pathlib import Path

WIDTH = 8  # bytes of a double


class Slots:
    """`count` doubles. With a folder they live in one file per worker, and `totals` sums over all workers' files."""

    def __init__(self, count: int, folder: Path | None = None, worker: int = 0) -> None:
        self._count = count
        self._folder = folder
        self._own = worker
        if folder is None:
            self._map = mmap.mmap(-1, count * WIDTH)
        else:
            with (folder / f"worker-{worker}").open("a+b") as file:
                file.truncate(count * WIDTH)  # a restarted worker goes on counting where it stopped
                self._map = mmap.mmap(file.fileno(), count * WIDTH)
        self.values = memoryview(self._map).cast("d")

    def totals(self) -> list[float]:
        """Each slot summed over the workers."""
        totals = list(self.values)
        if self._folder is None:
            return totals
        for path in self._folder.glob("worker-*"):
            data = path.read_bytes()
            if path.name == f"worker-{self._own}" or len(data) != self._count * WIDTH:
                continue
            for i, value in enumerate(memoryview(data).cast("d")):
                totals[i] += value
        return totals
