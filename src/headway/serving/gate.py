"""Refuses early, from the newest load snapshot and what this worker has sent since, before anything is tokenised."""

from collections import deque
from hashlib import blake2b

import msgspec

from headway.core.config import Settings
from headway.core.errors import EngineUnavailable, Overloaded, PromiseImpossible
from headway.core.events import Load, Outlook
from headway.core.lane import Lane
from headway.scheduling.outlook import UNKNOWN_END_S, Newcomer, find_share, unloaded_s, wait_needed
from headway.serving.bookings import Bookings
from headway.serving.engine_link import LOADING_RETRY_S, EngineLink
from headway.serving.request import Request

DRAIN_RETRY_S = 5.0  # time for another server, or the next start of this one, to take over
TOKENS_PER_CHAR = 0.25  # for the estimate before tokenising, until it is learned
LEARN = 0.05  # weight of one prompt in it
LEAST_CHARS = 64  # of a prompt that tells something: the chat template adds tokens to all


class Ticket:
    """One admitted request until the engine's load counts it."""

    __slots__ = ("booked", "chars", "lane", "released", "serial", "tenant", "tokens")

    def __init__(self, chars: int, tokens: int, lane: Lane, tenant: str, booked: bool) -> None:
        self.chars = chars
        self.tokens = tokens
        self.lane = lane
        self.tenant = tenant
        self.booked = booked  # it came back when it was told to
        self.serial = 0
        self.released = False


class Gate:
    """The first of two checks; the engine's own at its inbox is exact."""

    def __init__(self, link: EngineLink, settings: Settings) -> None:
        self._link = link
        self._bookings = Bookings(link.now)
        self._tokens_per_char = TOKENS_PER_CHAR
        self._sent: deque[Ticket] = deque()  # by serial
        self._live: set[Ticket] = set()  # not seen by the engine yet
        self._unseen = [0 for _ in Lane]
        self._unseen_tokens = [0 for _ in Lane]
        self.draining = False
        link.on_load = self.reflect
        self.reconfigure(settings)

    def reconfigure(self, settings: Settings) -> None:
        """From now on these hold."""
        self._queue = settings.queue
        self._batching = settings.batching
        self._promise = settings.promise
        self._long_prompt = settings.lanes.long_prompt_tokens
        self._workers = settings.server.api_workers

    def admit(self, request: Request, leader: Ticket | None = None) -> Ticket:
        """Lets it in. Raises EngineUnavailable or Overloaded. `leader`: of the same client's request with the same
        prompt, which is computed once."""
        if self.draining:
            raise EngineUnavailable("the server is shutting down", retry_after_s=DRAIN_RETRY_S, code="shutting_down")
        refusal = self._link.refusal()
        load = self._link.load
        if refusal is not None:
            raise refusal
        if load is None:
            raise EngineUnavailable("the model is still loading", retry_after_s=LOADING_RETRY_S)
        chars = 0 if leader else request.prompt.size
        tokens = int(chars * self._tokens_per_char)
        self._check_queue(load, request.lane, tokens)
        if leader is not None:
            booked = leader.booked
        else:
            booked = self._bookings.redeem(_content(request)) if self._bookings.any else False
        self._check_time(load, request, tokens, booked)
        ticket = Ticket(chars, tokens, request.lane, request.tenant, booked)
        self._count(ticket, 1)
        return ticket

    def check_possible(self, request: Request, tokens: int, least_output: int) -> None:
        """With the true number of prompt tokens. Raises PromiseImpossible if even an idle server could not make the
        request's deadline: its prompt, and the `least_output` tokens that it cannot do without."""
        load = self._link.load
        if request.deadline is None or load is None or load.outlook is None:
            return
        needed, given = unloaded_s(load.outlook, tokens, least_output), request.deadline - request.arrival
        if needed > given:
            raise PromiseImpossible(
                f"the request must end within {given:g} s, but takes about {needed:.2g} s even on an idle server"
                f" ({tokens} prompt tokens): allow more time, or send less",
                param="timeout",
            )

    def _check_queue(self, load: Load, lane: Lane, tokens: int) -> None:
        """The queue's bounds hold for what is before a newcomer: its lane, and the lanes before that."""
        lanes = load.lanes[: lane + 1]
        waiting = sum([entry.waiting for entry in lanes]) + sum(self._unseen[: lane + 1])
        room = self._room(load, lane)
        if waiting >= self._queue.max_requests + room:
            raise Overloaded(
                f"the queue is full: {waiting} requests wait, {self._queue.max_requests} may",
                retry_after_s=load.predicted_wait_s,
            )
        queued = sum([entry.tokens for entry in lanes]) + sum(self._unseen_tokens[: lane + 1])
        if (waiting or not room) and queued + tokens > self._queue.max_tokens:
            raise Overloaded(
                f"the queue is full: {queued} prompt tokens wait, {self._queue.max_tokens} may",
                retry_after_s=load.predicted_wait_s,
            )

    def _check_time(self, load: Load, request: Request, tokens: int, booked: bool) -> None:
        outlook, now = load.outlook, self._link.now()
        if outlook is None:
            return
        now += self._link.absence_s  # nothing begins before
        unseen, unseen_tokens = self._ahead(outlook, request, booked)
        newcomer = Newcomer(
            tokens,
            now - request.arrival,
            lane=request.lane,
            tenant=request.tenant,
            long=tokens > self._long_prompt,
            left_s=None if request.deadline is None else request.deadline - now,
            unseen=unseen,
            unseen_tokens=unseen_tokens,
            booked=booked,
        )
        if outlook.shares and find_share(outlook, request.lane, request.tenant) is None:
            return  # a tenant that the engine has not heard of for a while may have seats kept for it: it knows
        wait = wait_needed(outlook, self._promise, newcomer)
        if wait > 0:
            seat = (outlook.end_s or UNKNOWN_END_S) * self._workers
            raise Overloaded(
                "the promise (time to first token, time between tokens, deadline) could not be kept for it now",
                retry_after_s=self._bookings.book(_content(request), tokens, wait, seat),
            )

    def _ahead(self, outlook: Outlook, request: Request, booked: bool) -> tuple[int, int]:
        """Requests and prompt tokens before it that the load does not show: on the way to the engine, or told to come
        now. Before a modest tenant's there are only its own."""
        share = find_share(outlook, request.lane, request.tenant)
        if share is not None and share.modest:
            mine = [t for t in self._live if t.lane is request.lane and t.tenant == request.tenant]
            return len(mine), sum([t.tokens for t in mine])
        due, tokens = (0, 0) if booked else self._bookings.due()
        end = request.lane + 1
        return sum(self._unseen[:end]) + due, sum(self._unseen_tokens[:end]) + tokens

    def _room(self, load: Load, lane: Lane) -> int:
        """Requests that would be planned at the next step rather than wait."""
        capacity = self._link.engine.capacity if self._link.engine else 0
        if self._batching.policy == "continuous":
            ahead = load.running if lane is Lane.FLEX else sum([entry.running for entry in load.lanes[: Lane.FLEX]])
            return max(0, capacity - ahead)
        return 0 if load.running else min(self._batching.max_batch, capacity)

    def sent(self, ticket: Ticket, serial: int, tokens: int) -> None:
        """The request has gone to the engine, with its true number of tokens; none for one with a leader."""
        self._unseen_tokens[ticket.lane] += tokens - ticket.tokens
        ticket.tokens = tokens
        ticket.serial = serial
        if ticket.chars >= LEAST_CHARS:
            self._tokens_per_char += LEARN * (min(1.0, tokens / ticket.chars) - self._tokens_per_char)
        self._sent.append(ticket)

    def release(self, ticket: Ticket) -> None:
        """The request is counted by the engine, or was never sent."""
        if not ticket.released:
            ticket.released = True
            self._count(ticket, -1)

    def _count(self, ticket: Ticket, sign: int) -> None:
        if sign > 0:
            self._live.add(ticket)
        else:
            self._live.discard(ticket)
        self._unseen[ticket.lane] += sign
        self._unseen_tokens[ticket.lane] += sign * ticket.tokens

    def reflect(self, seen: int) -> None:
        """A new load has come, which counts this worker's requests up to serial `seen`."""
        while self._sent and self._sent[0].serial <= seen:
            self.release(self._sent.popleft())


def _content(request: Request) -> bytes:
    """What a client sends again when it comes back."""
    prompt = msgspec.msgpack.encode(request.prompt)
    return blake2b(prompt + request.tenant.encode(), digest_size=16).digest()
