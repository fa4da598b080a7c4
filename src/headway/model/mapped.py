"""Read-only maps of weight files."""

import contextlib
import mmap
from pathlib import Path

from headway.core.errors import ModelError


def map_file(path: Path) -> mmap.mmap:
    """Maps the whole file; ModelError if it cannot be read or is empty."""
    try:
        with path.open("rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:  # mmap says ValueError to an empty file
        raise ModelError(f"{path} cannot be read ({error})") from error


def release(data: mmap.mmap) -> None:
    """Gives the resident pages back and closes the map. Views that outlive it stay readable, from the file."""
    if data.closed:
        return
    if hasattr(data, "madvise"):
        data.madvise(mmap.MADV_DONTNEED)
    with contextlib.suppress(BufferError):  # a view is alive: the map goes with the last one
        data.close()
