"""The one clock of a request: it starts at HTTP arrival and covers queue, prefill and decode (decision 4)."""

from starlette.requests import HTTPConnection

from headway.core.config import PromiseSettings
from headway.core.errors import InvalidRequest
from headway.delivery.arrival import ARRIVAL
from headway.delivery.schemas import LONGEST_TIMEOUT_S
from headway.serving.request import Timing

HEADER = "X-Request-Timeout"  # seconds


def timing_of(request: HTTPConnection, promise: PromiseSettings, timeout: float | None = None) -> Timing:
    """When the request came and by when it must end: the earliest of the body's `timeout`, the header and the server's
    own limit. Raises InvalidRequest for a header that is not a number of seconds."""
    limits = [promise.total_s or None, timeout, _header_seconds(request)]
    given = [seconds for seconds in limits if seconds is not None]
    arrival: float = request.scope[ARRIVAL]
    return Timing(arrival, arrival + min(given) if given else None)


def _header_seconds(request: HTTPConnection) -> float | None:
    text = request.headers.get(HEADER)
    if text is None:
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds <= LONGEST_TIMEOUT_S:  # NaN is refused too
        raise InvalidRequest(f"{HEADER} must be seconds, more than 0 and at most {LONGEST_TIMEOUT_S:g}", param=HEADER)
    return seconds
