"""Where in a resumable stream its reader stands."""

from headway.client.event_reader import Dropped
from headway.client.sse import Event


class Position:
    """Of a stream whose events are numbered `<stream>-<n>` from 1, <stream> being the id in its chunks. Other ids are
    other people's business."""

    def __init__(self) -> None:
        self.stream: str | None = None  # None: it cannot be resumed
        self.seen = 0  # number of the last event

    def find(self, event: Event, chunk_id: object) -> None:
        """Before the first event is known to be one of such a stream."""
        stream, number = _parts(event)
        if self.stream is None and stream and stream == chunk_id and number == 1:
            self.stream = stream

    def advance(self, event: Event) -> bool:
        """False for an event that has been seen. Raises Dropped where one is missing."""
        stream, number = _parts(event)
        if self.stream is None or stream != self.stream:
            return True
        if number > self.seen + 1:
            raise Dropped(f"event {self.seen + 1} is missing")
        if number <= self.seen:
            return False
        self.seen = number
        return True


def _parts(event: Event) -> tuple[str, int]:
    stream, _, number = (event.id or "").rpartition("-")
    return (stream, int(number)) if number.isascii() and number.isdecimal() and len(number) < 19 else ("", 0)
