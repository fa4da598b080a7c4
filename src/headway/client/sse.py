"""Reads an event stream as its bytes arrive, wherever the network cuts them (WHATWG HTML, 9.2.6)."""

from dataclasses import dataclass

_BOM = b"\xef\xbb\xbf"
_CR, _LF = 13, 10


class EventTooLarge(ValueError):
    """An event, or one line, has more bytes than allowed."""


@dataclass(frozen=True, slots=True)
class Event:
    """`id` is the event's own: None where it came without one, unlike a browser's lastEventId."""

    data: str
    name: str = "message"
    id: str | None = None


class SseParser:
    """Holds at most `limit` bytes. What has no blank line after it when the body ends never was an event."""

    def __init__(self, limit: int = 1 << 20) -> None:
        self._limit = limit
        self._rest = bytearray()  # a line that has not ended
        self._after_cr = False  # a leading LF belongs to the CR before it
        self._at_start = True  # where a byte order mark may stand
        self._size = 0  # bytes in _data
        self._reset()

    def _reset(self) -> None:
        self._data: list[bytes] = []
        self._name = b""
        self._id: bytes | None = None
        self._size = 0

    def feed(self, data: bytes) -> list[Event]:
        """The events that these bytes complete. Raises EventTooLarge."""
        if self._after_cr and data[:1] == b"\n":
            data = data[1:]
            self._after_cr = False
        if not data:
            return []
        self._after_cr = data[-1] == _CR
        lines = data.splitlines()  # of bytes: at LF, CR and CRLF only
        last = b"" if data[-1] in (_CR, _LF) else lines.pop()
        events = []
        for line in lines:
            if self._rest:
                line = bytes(self._rest) + line
                self._rest.clear()
            event = self._line(line)
            if event is not None:
                events.append(event)
        self._rest += last
        self._check(len(self._rest))
        return events

    def _line(self, line: bytes) -> Event | None:
        self._check(len(line))
        if self._at_start:
            self._at_start = False
            line = line.removeprefix(_BOM)
        if line:
            self._field(line)
            return None
        event = None
        if self._data:
            event = Event(
                b"\n".join(self._data).decode(errors="replace"),
                self._name.decode(errors="replace") or "message",
                None if self._id is None else self._id.decode(errors="replace"),
            )
        self._reset()
        return event

    def _field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._size += len(value) + 1
            self._check(0)
            self._data.append(value)
        elif name == b"event":
            self._name = value
        elif name == b"id" and b"\0" not in value:
            self._id = value

    def _check(self, more: int) -> None:
        if self._size + more > self._limit:
            raise EventTooLarge(f"an event has more than {self._limit} bytes")
