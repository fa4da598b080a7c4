"""Packed matrices on disk: what the core made of a model's weights, mapped at the next start instead of made again.

A file is named by all that its bytes depend on, and is whole: it gets its name once it is written, and its checksum is
compared at every start. Engines of the same model share its pages. Without such a file, or a place for one, an engine
starts all the same, only later.
"""

import contextlib
import logging
import mmap
import os
import shutil
import struct
import tempfile
import time
from collections.abc import Iterable
from hashlib import blake2b
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import headway._native as _native

log = logging.getLogger(__name__)

# Kept at most; the least recently used go.
MOST_FILES = 4
MOST_BYTES = 32 << 30
LEAST_BYTES = 8 << 20  # smaller models are packed in no time
PART_S = 3600.0  # a file that was not finished for so long never will be
KEY_BYTES = 32

_MAGIC = b"hw-pack1"
_HEADER = struct.Struct(f"<8s{KEY_BYTES}sQQ")  # the magic, the key, size and checksum of the matrices
_CHECK = struct.Struct("<Q")  # checksum of the header, which it follows
_START = 4096  # of the matrices: a page
_SUFFIX = ".weights"


def key_of(model: Path, digest: str, isa: str) -> bytes:
    """Names the packed weights of a model's files. Times and sizes too, for the digest looks at samples only."""
    files = [model] if model.is_file() else sorted(model.glob("*.safetensors"))
    seen = [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    return blake2b(repr((_native.PACKING, isa, digest, seen)).encode(), digest_size=KEY_BYTES).digest()


def find_or_make(folder: Path, key: bytes, size: int, matrices: Iterable[NDArray[np.uint8]]) -> memoryview | None:
    """The packed matrices one after the other, `size` bytes, read-only from `folder`; `matrices` makes them where
    they are not there. None if there are none, nor can any be written: the log says why."""
    if size < LEAST_BYTES:
        return None
    path = folder / (key.hex()[:32] + _SUFFIX)
    found = _find(path, key, size)
    if found is not None or not _write(path, key, size, matrices):
        return found
    return _find(path, key, size)


def _find(path: Path, key: bytes, size: int) -> memoryview | None:
    try:
        with path.open("rb") as file:
            head = file.read(_HEADER.size + _CHECK.size)
            whole = os.fstat(file.fileno()).st_size == _START + size
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if whole else None
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        log.warning("packed weights in %s cannot be read (%s)", path, error)
        return None
    view = memoryview(data)[_START:] if data is not None else None
    if view is None or head != _head(key, view):
        log.warning("packed weights in %s are damaged, and made anew", path)
        return None
    with contextlib.suppress(OSError):
        os.utime(path)  # used now
    return view


def _head(key: bytes, matrices: memoryview) -> bytes:
    header = _HEADER.pack(_MAGIC, key, len(matrices), _native.checksum(matrices))
    return header + _CHECK.pack(_native.checksum(header))


def _write(path: Path, key: bytes, size: int, matrices: Iterable[NDArray[np.uint8]]) -> bool:
    """Whether there is such a file now."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if size > MOST_BYTES or shutil.disk_usage(path.parent).free < 2 * size:
            log.info("packed weights are not kept: %d MB are too much for %s", size >> 20, path.parent)
            return False
        with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".part", delete=False) as part:
            try:
                _fill(part.fileno(), key, matrices)
                Path(part.name).replace(path)
            except BaseException:
                Path(part.name).unlink(missing_ok=True)
                raise
        _trim(path.parent)
    except OSError as error:
        log.warning("packed weights are not kept: %s", error)
        return False
    log.info("packed weights kept in %s (%d MB)", path, size >> 20)
    return True


def _fill(fd: int, key: bytes, matrices: Iterable[NDArray[np.uint8]]) -> None:
    os.lseek(fd, _START, os.SEEK_SET)
    for matrix in matrices:
        rest = matrix.data
        while rest:
            rest = rest[os.write(fd, rest) :]
    with mmap.mmap(fd, 0, access=mmap.ACCESS_READ) as data, memoryview(data)[_START:] as written:
        head = _head(key, written)
    os.pwrite(fd, head, 0)


def _trim(folder: Path) -> None:
    """Removes what is too much. Whoever has mapped a file keeps it."""
    for part in folder.glob("*.part"):
        with contextlib.suppress(OSError):
            if time.time() - part.stat().st_mtime > PART_S:
                part.unlink()
    used = 0
    newest = sorted(((file.stat(), file) for file in folder.glob("*" + _SUFFIX)), key=lambda one: -one[0].st_mtime)
    for index, (stat, file) in enumerate(newest):
        used += stat.st_size
        if index >= MOST_FILES or used > MOST_BYTES + _START:
            file.unlink(missing_ok=True)
