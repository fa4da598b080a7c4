"""One request inside the scheduler: the tokens it knows, how many are computed, and where their K and V lie."""

from array import array

from headway.core.events import Finish
from headway.core.request import EngineRequest
from headway.scheduling.ledger import Account


class Sequence:
    """Known tokens are the prompt and what was emitted; a step computes some of known - computed (decision 1).

    There is no phase: a sequence with one uncomputed token decodes, one with more prefills, recomputes or replays.
    Running means holding a slot; everything else is waiting, or finished.
    """

    __slots__ = (
        "account",
        "added",
        "arrival",
        "cached_tokens",
        "computed",
        "deadline",
        "dropped",
        "endless",
        "ends",
        "finish",
        "first_s",
        "hashes",
        "id",
        "known",
        "lane",
        "last_token",
        "leader",
        "limit",
        "long",
        "min_tokens",
        "order",
        "peak",
        "prompt_length",
        "queue_end",
        "registered",
        "room",
        "salt",
        "sampling",
        "slot",
        "started",
        "steady",
        "tables",
        "token_end",
        "truncate",
        "ward",
        "ward_end",
    )

    def __init__(
        self,
        request: EngineRequest,
        serial: int,
        context: int,
        end_ids: frozenset[int],
        account: Account | None = None,
        long_prompt: int = 1 << 30,
    ) -> None:
        known = array("I")
        known.frombytes(request.prompt)
        sampling = request.sampling
        self.id = request.id
        self.sampling = sampling
        self.arrival = request.arrival
        self.deadline = request.deadline
        self.truncate = request.truncate
        self.lane = request.lane
        self.account = account or Account(request.lane, request.tenant)
        self.queue_end: float | None = None  # Clock seconds until which it may wait for its first step
        self.leader: int | None = (
            None  # id of the one that computes the prompt for this one too, while it waits for that
        )
        self.salt = request.salt
        self.order = (request.arrival, serial)  # one total order: who is older, in the queue and as a victim
        self.known = known
        self.prompt_length = len(known)
        self.long = len(known) > long_prompt
        self.limit = min(len(known) + sampling.max_tokens, context)  # known tokens it may grow to
        # A grammar's end ends it whatever was asked: the runner lets one through early only where nothing may follow.
        self.min_tokens = 0 if sampling.grammar else sampling.min_tokens
        stops = frozenset(sampling.stop_token_ids)
        endless = sampling.ignore_eos and not sampling.grammar
        self.ends = stops if endless else (end_ids | stops if stops else end_ids)
        self.endless = not self.ends  # nothing but its length ends it
        self.last_token = 0.0  # Clock seconds of the step that gave the newest one
        self.token_end: float | None = None  # when to look whether the next one is overdue
        self.added = 0.0  # Clock seconds when it was queued
        self.first_s = 0.0  # seconds from then in which its first token was expected; 0: nobody asked
        self.computed = 0
        self.peak = 0  # most tokens ever computed; below it a step recomputes
        self.cached_tokens = 0  # prompt tokens found in the prefix cache at the first start
        self.slot: int | None = None
        self.started = False
        self.steady = 0  # known tokens below which it is a stream that neither begins, recomputes nor ends by length
        self.ward = 0  # where it is computed apart from others, since engines have died with it; 0: it is not
        self.ward_end = 0  # tokens that clear it once they are computed
        self.finish: Finish | None = None
        if request.past is not None:
            known.frombytes(request.past.emitted)
            self.started = request.past.started or self.emitted > 0
            self.peak = len(known) - 1 if self.emitted else 0
        self.tables: tuple[array[int], ...] = ()  # one array('I') of block indices per layer group
        self.room = 0  # tokens that the tables cover
        self.dropped: list[int] = []  # per layer group: leading blocks given back, for no layer sees them any more
        self.hashes: list[bytes] = []  # chained hash of each full block of `known`, as far as it was asked for
        self.registered = 0  # leading blocks known to the prefix cache

    @property
    def running(self) -> bool:
        return self.slot is not None

    @property
    def uncomputed(self) -> int:
        return len(self.known) - self.computed

    @property
    def emitted(self) -> int:
        return len(self.known) - self.prompt_length

    def advance(self, count: int) -> int:
        """A step has computed `count` more tokens; says how many of them were computed before a preemption."""
        start = self.computed
        end = self.computed = start + count
        assert end <= len(self.known) and end <= self.room, self
        peak = self.peak
        if end <= peak:
            return count
        self.peak = end
        return peak - start if start < peak else 0

    def append(self, token: int) -> Finish | None:
        """Takes the token that follows the last computed one; says whether that ends the sequence."""
        known = self.known
        length = len(known) + 1
        assert self.computed == length - 1 and length <= self.limit, self
        known.append(token)
        # The sampler masks end tokens before min_tokens; one that comes anyway must not end the sequence.
        if token in self.ends and length - self.prompt_length > self.min_tokens:
            return Finish.STOP
        self.steady = self.limit - 1
        return Finish.LENGTH if length == self.limit else None

    def jump(self, forced: tuple[int, ...]) -> tuple[list[int], Finish | None]:
        """Takes the tokens that are sure to follow the newest one, up to an end or the limit; says whether it ends."""
        known = self.known
        for count, token in enumerate(forced, 1):
            known.append(token)
            if token in self.ends:
                return list(forced[:count]), Finish.STOP
            if len(known) == self.limit:
                return list(forced[:count]), Finish.LENGTH
        return list(forced), None

    def reset(self) -> None:
        """Forgets what was computed (its blocks are gone) but nothing that is known."""
        self.computed = self.registered = self.room = self.steady = 0
        self.tables = ()
        self.dropped = []
        self.slot = None

    def check(self) -> None:
        """Asserts the length invariant of a live sequence between steps."""
        assert 0 < self.prompt_length <= len(self.known) <= self.limit, self
        assert self.computed < len(self.known) and self.finish is None, self
        assert self.computed <= self.room and self.computed <= self.peak, self
        assert self.running or not self.tables, self
        assert not self.steady or (self.computed == self.peak and self.emitted > 0 and self.running), self

    def __repr__(self) -> str:
        return (
            f"Sequence(id={self.id}, known={len(self.known)}, computed={self.computed}, room={self.room},"
            f" slot={self.slot}, limit={self.limit}, finish={self.finish})"
        )
