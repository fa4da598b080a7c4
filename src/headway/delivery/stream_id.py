"""Ids of responses, which name the API worker that makes them, and of the events of a resumable one."""

import re
import secrets

from headway.core.errors import InvalidRequest

ID = re.compile(r"[a-z]{1,16}[-_]([0-9a-f]{2})[0-9a-f]{22,46}")
EVENT_ID = re.compile(r"([0-9A-Za-z_-]{1,80})-([0-9]{1,10})")
LONGEST_AFTER = 10**10


def new_id(prefix: str, worker: int) -> str:
    """`prefix` with its separator, then the worker's index in two hexadecimal digits, then chance."""
    return f"{prefix}{worker:02x}{secrets.token_hex(11)}"


def worker_of(id: str) -> int | None:
    """The worker that made it; None for what is no such id."""
    found = ID.fullmatch(id)
    return int(found[1], 16) if found else None


def split_event_id(text: str) -> tuple[str, int]:
    """An event's stream and number. Raises InvalidRequest."""
    found = EVENT_ID.fullmatch(text)
    if found is None:
        raise InvalidRequest("Last-Event-ID must be the id of an event: <stream>-<number>", param="Last-Event-ID")
    return found[1], int(found[2])
