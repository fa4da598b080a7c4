"""The waiting queue: three lanes, in each the tenants by what they have had, and each tenant's requests by arrival."""

from bisect import bisect_left, insort
from collections.abc import Iterator
from heapq import heapify, heappop, heappush, heapreplace

from headway.core.lane import Lane
from headway.scheduling.cost_model import attended
from headway.scheduling.sequence import Sequence


def _order(sequence: Sequence) -> tuple[float, int]:
    return sequence.order


class Line:
    """Sequences by (arrival, serial): one that was slow to be tokenised finds its place by itself."""

    def __init__(self) -> None:
        self._sequences: list[Sequence] = []
        self.tokens = 0  # known tokens, all of them uncomputed

    def __len__(self) -> int:
        return len(self._sequences)

    def __iter__(self) -> Iterator[Sequence]:
        return iter(self._sequences)

    @property
    def head(self) -> Sequence:
        return self._sequences[0]

    def add(self, sequence: Sequence) -> None:
        insort(self._sequences, sequence, key=_order)
        self.tokens += len(sequence.known)

    def remove(self, sequence: Sequence) -> None:
        index = bisect_left(self._sequences, sequence.order, key=_order)
        assert self._sequences[index] is sequence
        del self._sequences[index]
        self.tokens -= len(sequence.known)


class FairQueue:
    """Newcomers of one lane. Next is the oldest request of the tenant with the least

        served / weight + aging * arrival of its oldest request,

    so that a tenant with a long queue does not hold up one with a short one, and a request that came `t` seconds
    earlier makes up for `aging * t` tokens of service. As all ages grow alike, a key changes only with the tenant's
    service, which only grows, or its head: a heap whose stale entries are mended when they come up.
    """

    def __init__(self, aging: float) -> None:
        self._aging = aging
        self._lines: dict[str, Line] = {}
        self._heap: list[tuple[float, str]] = []
        self.count = 0
        self.tokens = 0  # known tokens, all of them uncomputed

    def add(self, sequence: Sequence) -> None:
        tenant = sequence.account.tenant
        line = self._lines.setdefault(tenant, Line())
        line.add(sequence)
        if line.head is sequence:
            heappush(self._heap, (self._key(line), tenant))
            if len(self._heap) > 2 * len(self._lines) + 64:  # stale entries of a lane that is not served
                self._rebuild()
        self.count += 1
        self.tokens += len(sequence.known)

    def remove(self, sequence: Sequence) -> None:
        tenant = sequence.account.tenant
        line = self._lines[tenant]
        line.remove(sequence)
        if not line:
            del self._lines[tenant]
        self.count -= 1
        self.tokens -= len(sequence.known)

    @property
    def head(self) -> Sequence | None:
        heap, lines = self._heap, self._lines
        while heap:
            key, tenant = heap[0]
            line = lines.get(tenant)
            if line is None:
                heappop(heap)
                continue
            now = self._key(line)
            if now <= key:
                return line.head
            heapreplace(heap, (now, tenant))
        return None

    def tokens_of(self, tenant: str) -> int:
        """Of one tenant's requests."""
        line = self._lines.get(tenant)
        return line.tokens if line else 0

    def set_aging(self, aging: float) -> None:
        self._aging = aging
        self._rebuild()

    def _rebuild(self) -> None:
        self._heap = [(self._key(line), tenant) for tenant, line in self._lines.items()]
        heapify(self._heap)

    def _key(self, line: Line) -> float:
        return self.turn(line.head)

    def turn(self, sequence: Sequence) -> float:
        """Least first."""
        return sequence.account.served + self._aging * sequence.arrival


class WaitingQueue:
    """Sequences without a slot. Those that have run before wait apart and come first in their lane; very long prompts
    wait apart too, so that the scheduler can serve them beside the others. Those that follow a leader, whose prompt is
    theirs, are in no queue before it is computed: then the prefix cache has it for them. Nor are those in a ward."""

    def __init__(self, aging: float) -> None:
        self.all = Line()  # by age
        self._returning = [Line() for _ in Lane]
        self._short = [FairQueue(aging) for _ in Lane]
        self._long = [FairQueue(aging) for _ in Lane]
        self._followers: dict[int, list[Sequence]] = {}  # by leader
        self._held = [0 for _ in Lane]

    def __len__(self) -> int:
        return len(self.all)

    def __iter__(self) -> Iterator[Sequence]:
        """Oldest first."""
        return iter(self.all)

    @property
    def oldest(self) -> Sequence:
        return self.all.head

    def count(self, lane: Lane) -> int:
        return len(self._returning[lane]) + self._short[lane].count + self._long[lane].count + self._held[lane]

    def tokens(self, lane: Lane) -> int:
        """Known tokens of a lane, but for followers: nearly all of theirs will be cached."""
        return self._returning[lane].tokens + self._short[lane].tokens + self._long[lane].tokens

    def long_tokens(self, lane: Lane) -> int:
        """Of them, those of long prompts."""
        return self._long[lane].tokens

    def long_keys(self, lane: Lane) -> int:
        """Keys that these attend to, all taken for equally long."""
        queue = self._long[lane]
        return queue.count * attended(0, queue.tokens // queue.count) if queue.count else 0

    def tokens_of(self, lane: Lane, tenant: str) -> int:
        """Of one tenant's newcomers."""
        return self._short[lane].tokens_of(tenant) + self._long[lane].tokens_of(tenant)

    def add(self, sequence: Sequence) -> None:
        self.all.add(sequence)
        if sequence.ward:
            self._held[sequence.lane] += 1
        elif sequence.started:
            self._returning[sequence.lane].add(sequence)
        else:
            self._queue(sequence).add(sequence)

    def follow(self, sequence: Sequence, leader: int) -> None:
        """It waits for the prompt of the sequence `leader`."""
        self.all.add(sequence)
        sequence.leader = leader
        self._followers.setdefault(leader, []).append(sequence)
        self._held[sequence.lane] += 1

    def let_go(self, leader: int, computed: bool) -> None:
        """The leader's prompt is computed: its followers queue up. Or it has ended before, and the first takes over."""
        if leader not in self._followers:
            return
        followers = self._followers.pop(leader)
        going = followers if computed else followers[:1]
        for sequence in going:
            sequence.leader = None
            self._held[sequence.lane] -= 1
            self._queue(sequence).add(sequence)
        if rest := followers[len(going) :]:
            self._followers[going[0].id] = rest
            for sequence in rest:
                sequence.leader = going[0].id

    def remove(self, sequence: Sequence) -> None:
        self.all.remove(sequence)
        if sequence.leader is not None:
            self._held[sequence.lane] -= 1
            followers = self._followers[sequence.leader]
            followers.remove(sequence)
            if not followers:
                del self._followers[sequence.leader]
        elif sequence.ward:
            self._held[sequence.lane] -= 1
        elif sequence.started:
            self._returning[sequence.lane].remove(sequence)
        else:
            self._queue(sequence).remove(sequence)

    def turn(self, sequence: Sequence) -> float:
        """By which sequences of one lane follow each other, least first."""
        return self._short[sequence.lane].turn(sequence)

    def set_aging(self, aging: float) -> None:
        """Tokens that a second of waiting weighs."""
        for queue in (*self._short, *self._long):
            queue.set_aging(aging)

    def returning(self, lane: Lane) -> Sequence | None:
        """The next of those that have run before."""
        line = self._returning[lane]
        return line.head if line else None

    def newcomer(self, lane: Lane, long: bool) -> Sequence | None:
        """The next of those that have not."""
        return (self._long if long else self._short)[lane].head

    def _queue(self, sequence: Sequence) -> FairQueue:
        return (self._long if sequence.long else self._short)[sequence.lane]
