"""What is stored is there for its owner, until it expires; what nobody makes any more is failed."""

import json
import sqlite3
import stat
import time
from pathlib import Path
from typing import Any

import pytest

from headway.core.config import ServerSettings
from headway.delivery.responses_store import ResponsesStore, Stored

ITEMS = [{"id": "msg_1", "type": "message"}]
EVENTS = [b'event: a\ndata: {"x":1}\n\n', b"event: b\ndata: {}\n\n"]


async def opened(path: Path, **settings: Any) -> ResponsesStore:
    store = ResponsesStore(ServerSettings(store_path=path / "deep" / "r.db", **settings))
    await store.open()
    return store


def owners(path: Path) -> list[Path]:
    return list(path.glob("deep/*owner*"))


def made(id: str, ended: bool = True, size: int = 0, created: float | None = None) -> Stored:
    status = "completed" if ended else "in_progress"
    fields = {"id": id, "status": status, "created_at": created or time.time(), "text": "".join(map(chr, range(size)))}
    return Stored(id, "k", json.dumps(fields).encode(), ITEMS, EVENTS if ended else None)


async def test_kept_for_its_key_until_deleted(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    one = made("resp_1")
    await store.begin(made("resp_1", ended=False))
    found = await store.find("resp_1", "k")
    assert found is not None and not found.ended
    await store.finish(one)
    assert await store.find("resp_1", "k") == one
    assert await store.find("resp_1", "other") is None
    await store.close()
    store = await opened(tmp_path)
    assert await store.find("resp_1", "k") == one
    await store.delete("resp_1")
    assert await store.find("resp_1", "k") is None
    await store.close()


async def test_what_died_in_the_making_is_failed_and_what_lives_is_not(tmp_path: Path) -> None:
    one, other = await opened(tmp_path), await opened(tmp_path)
    await one.begin(made("resp_1", ended=False))
    await other.begin(made("resp_2", ended=False))
    await one.close()  # as its death: its lock is free
    third = await opened(tmp_path)
    failed = await third.find("resp_1", "k")
    assert failed is not None and failed.events is not None
    response = json.loads(failed.response)
    assert response["status"] == "failed" and response["error"]["message"] and failed.items == ITEMS
    assert json.loads(failed.events[-1].split(b"data: ")[1]) == {
        "type": "response.failed",
        "response": response,
        "sequence_number": 1,
    }
    living = await third.find("resp_2", "k")
    assert living is not None and not living.ended
    for store in (other, third):
        await store.close()
    assert not owners(tmp_path)


async def test_it_expires(tmp_path: Path) -> None:
    store = await opened(tmp_path, store_days=1)
    await store.finish(made("resp_1", created=time.time() - 90_000))
    await store.finish(made("resp_2"))
    assert await store.find("resp_1", "k") is None and await store.find("resp_2", "k") is not None
    await store.close()
    rows = sqlite3.connect(tmp_path / "deep" / "r.db").execute("SELECT id FROM responses").fetchall()
    assert rows == [("resp_2",)]


async def test_the_oldest_make_room(tmp_path: Path) -> None:
    store = await opened(tmp_path, store_mb=1)
    for number in range(60):
        await store.finish(made(f"resp_{number}", size=50_000, created=time.time() + number))
    assert await store.find("resp_0", "k") is None
    assert await store.find("resp_59", "k") is not None
    assert (tmp_path / "deep" / "r.db").stat().st_size < 2 << 20
    await store.close()


async def test_nobody_else_can_read_it(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    await store.finish(made("resp_1"))
    for path in (tmp_path / "deep").glob("r.db*"):
        assert not stat.S_IMODE(path.stat().st_mode) & 0o077, path
    await store.close()


@pytest.mark.parametrize("settings", [{"store_days": 0}, {}])
async def test_without_a_place_nothing_is_kept(tmp_path: Path, settings: dict[str, Any]) -> None:
    (tmp_path / "deep").write_text("a file where the folder should be")
    store = await opened(tmp_path, **settings)
    assert not store.opened and await store.find("resp_1", "k") is None
    await store.close()
