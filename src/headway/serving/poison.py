"""Requests that engines have died of, by what is computed for them: what every API worker refuses for a while."""

from collections.abc import Iterable
from hashlib import blake2b

from headway.core.request import EngineRequest

POISON = "poison_request"  # the error's code
REFUSED_S = 600.0
MOST = 1024


def fingerprint(request: EngineRequest) -> str:
    """Of its prompt and its tenant."""
    return blake2b(request.prompt, digest_size=16, key=request.tenant.encode()[:64]).hexdigest()


class Poison:
    """Fingerprints, and until when (Clock seconds) each is refused; the oldest make room for the newest."""

    def __init__(self) -> None:
        self._until: dict[str, float] = {}

    def add(self, fingerprint: str, until: float) -> None:
        self._until.pop(fingerprint, None)
        while len(self._until) >= MOST:
            del self._until[next(iter(self._until))]
        self._until[fingerprint] = until

    def holds(self, request: EngineRequest, now: float) -> bool:
        return bool(self._until) and self._until.get(fingerprint(request), 0.0) > now

    def known(self, now: float) -> Iterable[tuple[str, float]]:
        """What is refused at this time."""
        return [(fingerprint, until) for fingerprint, until in self._until.items() if until > now]
