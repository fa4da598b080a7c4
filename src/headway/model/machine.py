"""What this machine could do at best: the limits that speeds are stated against."""

from dataclasses import dataclass
from pathlib import Path

import headway._native as _native


@dataclass(frozen=True, slots=True)
class Machine:
    """Limits measured by native code that shares nothing with the model's kernels (best of five, all threads)."""

    threads: int
    isa: str
    read_bytes_per_s: float  # vector loads over 512 MiB
    int8_macs_per_s: float  # int8 dot products in registers


def probe(threads: int) -> Machine:
    """Measures for about a second."""
    read, macs = _native.probe(threads)
    return Machine(threads, _native.best_isa(), read, macs)


def free_memory() -> int | None:
    """Bytes that can be had without swapping. None where the system does not say (it is no Linux)."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:")), None)
