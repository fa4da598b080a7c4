"""Refuses early, from the newest load snapshot and what this worker has sent since, before anything is tokenised."""

from collections import deque

from headway.core.config import Settings
from headway.core.errors import EngineUnavailable, Overloaded
from headway.core.events import Load
from headway.scheduling.outlook import Newcomer, wait_needed
from headway.serving.bookings import Bookings
from headway.serving.engine_link import EngineLink

LOADING_RETRY_S = 2.0
DRAIN_RETRY_S = 5.0  # time for another server, or the next start of this one, to take over


class Ticket:
    """One admitted request until the engine's load counts it."""

    __slots__ = ("released", "serial", "tokens")

    def __init__(self, tokens: int) -> None:
        self.tokens = tokens
        self.serial = 0
        self.released = False


class Gate:
    """The first of two checks; the engine's own at its inbox is exact."""

    def __init__(self, link: EngineLink, settings: Settings) -> None:
        self._link = link
        self._queue = settings.queue
        self._batching = settings.batching
        self._promise = settings.promise
        self._bookings = Bookings(link.now)
        self._sent: deque[Ticket] = deque()  # by serial
        self._unseen = 0
        self._unseen_tokens = 0
        self.draining = False
        link.on_step = self.reflect

    def admit(self, tokens: int, waited_s: float = 0.0) -> Ticket:
        """Lets a request of about `tokens` prompt tokens in, that came `waited_s` ago. Raises EngineUnavailable or
        Overloaded."""
        if self.draining:
            raise EngineUnavailable("the server is shutting down", retry_after_s=DRAIN_RETRY_S, code="shutting_down")
        trouble = self._link.trouble()
        load = self._link.load
        if trouble is not None or load is None:
            raise EngineUnavailable(trouble or "the model is still loading", retry_after_s=LOADING_RETRY_S)
        waiting = load.waiting + self._unseen
        room = self._room(load)
        if waiting >= self._queue.max_requests + room:
            raise Overloaded(
                f"the queue is full: {waiting} requests wait, {self._queue.max_requests} may",
                retry_after_s=load.predicted_wait_s,
            )
        queued = load.waiting_tokens + self._unseen_tokens
        if (waiting or not room) and queued + tokens > self._queue.max_tokens:
            raise Overloaded(
                f"the queue is full: {queued} prompt tokens wait, {self._queue.max_tokens} may",
                retry_after_s=load.predicted_wait_s,
            )
        if load.outlook is not None:
            newcomer = Newcomer(tokens, waited_s, self._unseen, self._unseen_tokens)
            if (wait := wait_needed(load.outlook, self._promise, newcomer)) > 0:
                raise Overloaded(
                    "the promise (time to first token, time between tokens) could not be kept for it now",
                    retry_after_s=self._bookings.book(wait, load.outlook.end_s),
                )
        ticket = Ticket(tokens)
        self._unseen += 1
        self._unseen_tokens += tokens
        return ticket

    def _room(self, load: Load) -> int:
        """Requests that would be planned at the next step rather than wait."""
        capacity = self._link.engine.capacity if self._link.engine else 0
        if self._batching.policy == "continuous":
            return max(0, capacity - load.running)
        return 0 if load.running else min(self._batching.max_batch, capacity)

    def sent(self, ticket: Ticket, serial: int, tokens: int) -> None:
        """The request has gone to the engine, with its true number of tokens."""
        self._unseen_tokens += tokens - ticket.tokens
        ticket.tokens = tokens
        ticket.serial = serial
        self._sent.append(ticket)

    def release(self, ticket: Ticket) -> None:
        """The request is counted by the engine, or was never sent."""
        if not ticket.released:
            ticket.released = True
            self._unseen -= 1
            self._unseen_tokens -= ticket.tokens

    def reflect(self, seen: int) -> None:
        """A new load has come, which counts this worker's requests up to serial `seen`."""
        while self._sent and self._sent[0].serial <= seen:
            self.release(self._sent.popleft())
