"""A gate in front of an engine that is a load made by hand."""

from itertools import count
from typing import Any

from rig import make_outlook

from headway.core.clock import ManualClock
from headway.core.config import Settings
from headway.core.events import LaneLoad, Load
from headway.core.lane import LANES
from headway.core.sampling import Sampling
from headway.serving.engine_link import EngineLink
from headway.serving.gate import Gate
from headway.serving.ipc import Welcome
from headway.serving.request import Request, TokenPrompt

NOW = 100.0
SERIALS = count()
OUTLOOK = make_outlook()


def ask(tokens: int, lane: str = "default", **fields: Any) -> Request:
    """A request whose content nobody else has."""
    prompt = TokenPrompt([next(SERIALS)] * tokens)
    usual = {"prompt": prompt, "sampling": Sampling(max_tokens=1), "arrival": NOW, "lane": LANES[lane]}
    return Request(**{**usual, **fields})


def make(
    load: dict[str, Any] | None = None, capacity: int = 2, **settings: dict[str, Any]
) -> tuple[Gate, EngineLink, ManualClock]:
    clock = ManualClock(NOW)
    link = EngineLink("ipc://nowhere", 0, clock, 16)
    gate = Gate(link, Settings(**settings))  # type: ignore[arg-type]
    if load is not None:
        link.engine = Welcome(epoch=1, fingerprint="f", context=100, capacity=capacity, vocab_size=10)
        show(link, **load)
    return gate, link, clock


def show(link: EngineLink, **changes: Any) -> None:
    """A load that came just now. A lane by its name: waiting, running, uncomputed tokens."""
    lanes = [LaneLoad(*changes.pop(name, (0, 0, 0))) for name in LANES]
    fields = {
        "time": link.now(),
        "ready": True,
        "waiting": sum(lane.waiting for lane in lanes),
        "waiting_tokens": sum(lane.tokens for lane in lanes),
        "running": sum(lane.running for lane in lanes),
        "free_blocks": 1,
        "total_blocks": 1,
        "predicted_wait_s": 0.5,
    }
    link.load = Load(**{**fields, "lanes": lanes, **changes})
