"""A request as it crosses from the API to the engine: token ids and integers, no text."""

import msgspec

from headway.core.lane import Lane
from headway.core.sampling import Sampling

WORKER_SHIFT = 40
LIFE_SHIFT = 28  # a worker's serials begin anew here at each of its starts, so that no id comes twice
LIVES = 1 << (WORKER_SHIFT - LIFE_SHIFT)


def request_id(worker: int, serial: int) -> int:
    """The engine-wide id of worker `worker`'s `serial`-th request; the worker's index rides in the high bits."""
    return (worker << WORKER_SHIFT) | serial


def worker_of(request: int) -> int:
    return request >> WORKER_SHIFT


def serial_of(request: int) -> int:
    return request & ((1 << WORKER_SHIFT) - 1)


class Past(msgspec.Struct, frozen=True, array_like=True):
    """What a request has had from engines that died with it: the next one goes on from there."""

    emitted: bytes = b""  # token ids, like a prompt's
    started: bool = False  # its reader has heard that it started


class EngineRequest(msgspec.Struct, frozen=True, array_like=True, kw_only=True, tag="request"):
    """One sequence to generate."""

    id: int  # unique per engine life; see `request_id`
    epoch: int  # the engine start this was addressed to
    prompt: bytes  # token ids, array('I').tobytes(): uint32 in native order
    sampling: Sampling
    arrival: float  # Clock seconds of the HTTP arrival
    deadline: float | None = None  # Clock seconds; None: no deadline
    truncate: bool = False  # at its deadline it ends with what it has (LENGTH) instead of EXPIRED
    lane: Lane = Lane.DEFAULT
    tenant: str = ""  # who shares with whom within the lane
    weight: float = 1.0  # the tenant's share relative to others
    booked: bool = False  # it was refused before and has come when it was told to
    leader: int | None = None  # a request with the same prompt, sent before, whose computed prompt is this one's too
    salt: bytes = b""  # tenant salt of the prefix cache, derived on the server
    past: Past | None = None  # it was accepted before: no bound of the queue holds for it any more


class Cancel(msgspec.Struct, frozen=True, array_like=True, kw_only=True, tag="cancel"):
    """Stop a request at the next step boundary and free its blocks: disconnect, stop string, deadline or shutdown."""

    id: int
    epoch: int
    reason: str


ToEngine = EngineRequest | Cancel
