"""Leaves alone for a while what keeps failing, then lets one request find out whether it is back."""

import logging
from typing import Literal

from headway.core.clock import Clock

log = logging.getLogger(__name__)

State = Literal["closed", "open", "half_open"]


class Admission:
    """One request that was let through. Exactly one of its three methods is called when its outcome is known."""

    __slots__ = ("_breaker", "_probe")

    def __init__(self, breaker: "CircuitBreaker", probe: bool) -> None:
        self._breaker = breaker
        self._probe = probe

    def succeeded(self) -> None:
        self._breaker.report(True, self._probe)

    def failed(self) -> None:
        self._breaker.report(False, self._probe)

    def abandoned(self) -> None:
        """It ended without telling anything about the server."""
        self._breaker.report(None, self._probe)


class CircuitBreaker:
    """Opens after `failures` in a row. `open_s` later it is half open: one request goes through as a probe, and its
    outcome closes it or opens it again. `name`, of what fails, is for the log."""

    def __init__(self, clock: Clock, failures: int = 8, open_s: float = 5.0, name: str = "server") -> None:
        if failures < 1 or open_s <= 0:
            raise ValueError("a circuit breaker needs at least 1 failure and more than 0 seconds")
        self._clock = clock
        self._limit = failures
        self._open_s = open_s
        self._name = name
        self.openings = 0  # times it has gone from closed to open
        self._failures = 0  # in a row, while closed
        self._opened: float | None = None  # None: closed
        self._probing = False

    @property
    def state(self) -> State:
        if self._opened is None:
            return "closed"
        return "open" if self._left() > 0 else "half_open"

    @property
    def retry_after(self) -> float:
        """Seconds until a request may be admitted; 0 if one is now. Behind a probe nobody knows: `open_s`."""
        return self._open_s if self._probing else self._left()

    def admit(self) -> Admission | None:
        """None: refused. Half open, only the first one may go: the probe."""
        if self._opened is None:
            return Admission(self, probe=False)
        if self._probing or self._left() > 0:
            return None
        self._probing = True
        return Admission(self, probe=True)

    def report(self, well: bool | None, probe: bool) -> None:
        """What came of a request. Once open, only the probe counts: the others were sent before."""
        if probe:
            self._probing = False
            if well is None:
                return
            self._failures = 0
            if well:
                self._opened = None
                log.info("circuit breaker of the %s: half_open -> closed (it works again)", self._name)
            else:
                self._open("half_open", "it has failed again", self._open_s)
        elif self._opened is None and well is not None:
            self._failures = 0 if well else self._failures + 1
            if self._failures >= self._limit:
                self._open("closed", f"{self._failures} failures in a row", self._open_s)
                self._failures = 0
                self.openings += 1

    def broke(self, why: str, open_s: float) -> None:
        """What stands behind it has failed as a whole, and is away for `open_s` seconds."""
        self._open_s = open_s
        if self._opened is None:
            self.report(False, probe=False)
        else:
            self._probing = False
            self._open("half_open" if self._left() <= 0 else "open", why, open_s)

    def _open(self, before: State, why: str, open_s: float) -> None:
        self._opened = self._clock.now()
        log.warning("circuit breaker of the %s: %s -> open for %g s (%s)", self._name, before, open_s, why)

    def _left(self) -> float:
        return 0.0 if self._opened is None else max(0.0, self._opened + self._open_s - self._clock.now())
