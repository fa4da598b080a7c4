"""Responses on disk, in SQLite: they outlive every process, until they expire or the oldest make room."""

import asyncio
import fcntl
import logging
import os
import secrets
import sqlite3
import time
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from headway.core.config import ServerSettings
from headway.core.errors import EngineUnavailable
from headway.delivery.responses_items import Item

log = logging.getLogger(__name__)

Result = TypeVar("Result")
BUSY_S = 5.0  # to wait for another worker's transaction
DAY_S = 86_400.0
SCHEMA = """
CREATE TABLE IF NOT EXISTS responses (
    id TEXT PRIMARY KEY,
    key TEXT NOT NULL,        -- of whose API key it is
    created REAL NOT NULL,    -- Unix seconds
    owner TEXT,               -- the worker that makes it; NULL: it has ended
    response BLOB NOT NULL,   -- JSON, as the others; zlib
    items BLOB NOT NULL,      -- what it was made from
    events BLOB,              -- as they were sent
    first INTEGER NOT NULL    -- sequence number of the first of these
) STRICT;
CREATE INDEX IF NOT EXISTS by_age ON responses (created);
CREATE INDEX IF NOT EXISTS by_owner ON responses (owner) WHERE owner IS NOT NULL;
"""
LOST = {"code": "server_error", "message": "the server ended while it made this response"}


@dataclass(frozen=True, slots=True)
class Stored:
    """One response as it is kept."""

    id: str
    key: str
    response: bytes  # JSON
    items: list[Item]
    events: list[bytes] | None = None  # None: it has not ended
    first: int = 0  # sequence number of the first event

    @property
    def ended(self) -> bool:
        return self.events is not None


class ResponsesStore:
    """One connection, used by one thread. Several processes may share the file.

    `opened` tells whether it works: without a place to write, or with `store_days` 0, nothing is kept.
    """

    def __init__(self, settings: ServerSettings) -> None:
        self._path = settings.store_path or data_folder() / "responses.db"
        self._days = settings.store_days
        self._bytes = settings.store_mb << 20
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="responses-store")
        self._database: sqlite3.Connection | None = None
        self._owner = secrets.token_hex(8)
        self._alive: int | None = None  # file descriptor of this owner's lock

    @property
    def opened(self) -> bool:
        return self._database is not None

    async def open(self) -> None:
        """What a worker that has died was making is failed from now on."""
        if not self._days:
            return
        try:
            await self._run(self._open)
        except (OSError, sqlite3.Error) as error:
            log.warning("%s cannot be used (%s): no responses are stored", self._path, error)
            await self._run(self._close)

    async def begin(self, stored: Stored) -> None:
        """Keeps one that is being made, so that it is known if this process dies."""
        await self._run(lambda: self._write(stored, self._owner))

    async def finish(self, stored: Stored) -> None:
        """Keeps one that has ended."""
        await self._run(lambda: self._write(stored, None))

    async def find(self, id: str, key: str) -> Stored | None:
        """None where there is none of that id and key."""
        return await self._run(lambda: self._read(id, key)) if self.opened else None

    async def delete(self, id: str) -> None:
        await self._run(lambda: self._execute("DELETE FROM responses WHERE id = ?", id))

    async def close(self) -> None:
        """After what is being written."""
        await self._run(self._close)
        self._executor.shutdown(wait=False)

    # In the thread.

    async def _run(self, work: Callable[[], Result]) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)

    def _open(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.close(os.open(self._path, os.O_CREAT | os.O_RDWR, 0o600))  # others have no business with conversations
        self._alive = _lock(self._lock_of(self._owner))
        opening = _lock(self._path.with_name(f"{self._path.name}-opening"), wait=True)  # all workers start at once
        assert opening is not None
        try:
            self._database = sqlite3.connect(self._path, timeout=BUSY_S, isolation_level=None)
            self._database.execute("PRAGMA journal_mode = WAL")
            self._database.execute("PRAGMA synchronous = NORMAL")
            self._database.executescript(SCHEMA)
            self._bury()
        finally:
            os.close(opening)

    def _lock_of(self, owner: str) -> Path:
        return self._path.with_name(f"{self._path.name}-owner-{owner}")

    def _bury(self) -> None:
        """Fails what nobody makes any more: whose owner's lock is free."""
        for (owner,) in self._execute("SELECT DISTINCT owner FROM responses WHERE owner IS NOT NULL"):
            lock = self._lock_of(owner)
            held = None
            if owner == self._owner or (lock.exists() and (held := _lock(lock)) is None):
                continue
            for id, key, response, items in self._execute(
                "SELECT id, key, response, items FROM responses WHERE owner = ?", owner
            ):
                self._fail(Stored(id, key, _unpack(response), msgspec.json.decode(_unpack(items))))
            lock.unlink(missing_ok=True)
            if held is not None:
                os.close(held)

    def _fail(self, stored: Stored) -> None:
        fields: dict[str, Any] = msgspec.json.decode(stored.response)
        fields |= {"status": "failed", "error": LOST}
        created = {**fields, "status": "in_progress", "error": None}
        events = []
        for number, (kind, response) in enumerate([("response.created", created), ("response.failed", fields)]):
            data = msgspec.json.encode({"type": kind, "response": response, "sequence_number": number})
            events.append(b"event: %b\ndata: %b\n\n" % (kind.encode(), data))
        self._write(Stored(stored.id, stored.key, msgspec.json.encode(fields), stored.items, events), None)

    def _write(self, stored: Stored, owner: str | None) -> None:
        created = msgspec.json.decode(stored.response)["created_at"]
        items = _pack(msgspec.json.encode(stored.items))
        events = None if stored.events is None else _pack(b"".join(stored.events))
        self._execute(
            "INSERT OR REPLACE INTO responses VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            *(stored.id, stored.key, created, owner, _pack(stored.response), items, events, stored.first),
        )
        self._make_room()

    def _make_room(self) -> None:
        self._execute("DELETE FROM responses WHERE created < ? AND owner IS NULL", time.time() - self._days * DAY_S)
        while self._size() > self._bytes:
            oldest = "SELECT id FROM responses WHERE owner IS NULL ORDER BY created LIMIT 1"
            if not self._execute(f"DELETE FROM responses WHERE id IN ({oldest}) RETURNING id"):
                return

    def _size(self) -> int:
        """Bytes in use; what is free in the file is used again."""
        pages, free, size = (
            self._execute(f"PRAGMA {name}")[0][0] for name in ("page_count", "freelist_count", "page_size")
        )
        return int((pages - free) * size)

    def _read(self, id: str, key: str) -> Stored | None:
        oldest = time.time() - self._days * DAY_S
        rows = self._execute(
            "SELECT response, items, events, first FROM responses WHERE id = ? AND key = ? AND created >= ?",
            *(id, key, oldest),
        )
        if not rows:
            return None
        response, items, events, first = rows[0]
        parted = None if events is None else [event + b"\n\n" for event in _unpack(events).split(b"\n\n")[:-1]]
        return Stored(id, key, _unpack(response), msgspec.json.decode(_unpack(items)), parted, first)

    def _execute(self, statement: str, *values: object) -> list[Any]:
        if self._database is None:
            raise EngineUnavailable("the store of responses is closed", code="store_unavailable")
        return self._database.execute(statement, values).fetchall()

    def _close(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None
        if self._alive is not None:
            self._lock_of(self._owner).unlink(missing_ok=True)
            os.close(self._alive)
            self._alive = None


def data_folder() -> Path:
    """Headway's folder for the user's data (XDG base directories)."""
    stated = os.environ.get("XDG_DATA_HOME")
    return (Path(stated) if stated else Path.home() / ".local" / "share") / "headway"


def _lock(path: Path, wait: bool = False) -> int | None:
    """Its descriptor, with the lock, which ends with the process; None if another has it and this does not wait."""
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def _pack(data: bytes) -> bytes:
    return zlib.compress(data, 1)


def _unpack(data: bytes) -> bytes:
    return zlib.decompress(data)
