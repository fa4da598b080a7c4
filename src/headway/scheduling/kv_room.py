"""Who gets KV blocks: growth of those that run, newcomers as far as can be foreseen, and who must leave."""

from collections.abc import Callable

from headway.core.lane import Lane
from headway.scheduling.forecast import Forecast
from headway.scheduling.plan import Counters
from headway.scheduling.requirements import Requirements
from headway.scheduling.running import RunningSet
from headway.scheduling.sequence import Sequence
from headway.scheduling.victims import choose_victim, price
from headway.scheduling.waiting import WaitingQueue

# Of all blocks, what the oldest flex sequence may hold without having to leave for newcomers of the other lanes.
SAFE_PART = 0.25
TYPICAL = 16  # running sequences, whose mean stands for a newcomer
PLENTY = 1 << 20  # seats, where nobody runs


class KvRoom:
    """The blocks' side of a plan. `starved`: this plan could not let a newcomer in for lack of blocks."""

    def __init__(
        self,
        running: RunningSet,
        waiting: WaitingQueue,
        requirements: Requirements,
        counters: Counters,
        fail: Callable[[Sequence, str], None],
    ) -> None:
        self.forecast = Forecast(running.blocks.block_size, running.blocks.windows)
        self.starved = False
        self.spares_oldest_flex = True
        self._running = running
        self._waiting = waiting
        self._blocks = running.blocks
        self._requirements = requirements
        self._counters = counters
        self._fail = fail
        self._last_victim: int | None = None
        self._kept = [0 for _ in Lane]  # blocks kept from the lanes before, for one that is owed and needs them
        self._peaks: dict[bool, int] = {}  # this plan's forecast of blocks, with and without flex

    def begin(self) -> None:
        """A new plan: a block for everyone whose next token needs one; somebody leaves if there is none."""
        self.starved = False
        self._peaks.clear()
        for lane in Lane:
            if not self._waiting.count(lane):
                self._kept[lane] = 0
        if self._blocks.available >= len(self._running):
            return  # there is one for each, who takes it when it is planned
        for sequence in [s for s in self._running.sequences if s.computed >= s.room]:
            while sequence.slot is not None:
                length = len(sequence.known)
                if not self._requirements.fits(length):
                    self._fail(sequence, self._requirements.too_long(length))
                    self._running.sweep()
                elif self._blocks.grow(sequence, length):
                    break
                else:
                    self._preempt(choose_victim(self._running.sequences, self._last_victim))

    # -- newcomers -------------------------------------------------------------------------------------------------

    def admit(self, head: Sequence, taken: set[int], owed: bool) -> bool:
        """Gives it blocks, if it is likely to end without anybody having to leave for it. Flex leaves for others, but
        not those whose ids are `taken`: they are planned. `owed`: its lane is owed all that it can be."""
        if self._foreseen(head):
            # One block of headroom for each that runs: all can grow once more before anybody is preempted, and who was
            # preempted in this very plan does not come straight back.
            headroom = self._kept_from(head.lane)
            while not self._blocks.admit(head, headroom=headroom + len(self._running)):
                if not self.evict_flex(head.lane, taken):
                    break
            else:
                self._kept[head.lane] = 0
                return True
        self.starved = True
        if head.lane is Lane.FLEX and not self._safe(head):
            self._kept[head.lane] = 0  # it waits until nobody else does
        elif owed:  # one more of the blocks that fall free is kept for it at each step
            need = min(self.forecast.blocks(head), int(SAFE_PART * self._blocks.total))
            self._kept[head.lane] = min(need, self._kept[head.lane] + 1)
        return False

    def evict_flex(self, lane: Lane, taken: set[int]) -> bool:
        """A flex sequence leaves for a newcomer of another lane. False: there is none."""
        flex = [] if lane is Lane.FLEX else self._running.flex[:]
        if flex and self.spares_oldest_flex and self._safe(flex[0]):
            del flex[0]  # or what it is owed would be spent on computing the same again and again
        flex = [s for s in flex if s.id not in taken]
        if not flex:
            return False
        self._preempt(min(flex, key=price))
        return True

    def _foreseen(self, head: Sequence) -> bool:
        running, size = self._running, self._blocks.block_size
        with_flex = head.lane is Lane.FLEX
        if with_flex and not self._safe(head) and any(map(self._waiting.count, (Lane.PRIORITY, Lane.DEFAULT))):
            return False  # it would have to leave for them
        if not (len(running) if with_flex else running.interactive):
            return True
        total = self._blocks.total - self._kept_from(head.lane)
        if (running.limits + head.limit) // size + len(running) + 1 <= total:
            return True  # even if all grow as long as they may
        if with_flex not in self._peaks:
            self._peaks[with_flex] = self._peak(with_flex)
        need = self._peaks[with_flex] + self.forecast.blocks(head)
        if need > total:
            return False
        self._peaks[with_flex] = need
        return True

    def _safe(self, flex: Sequence) -> bool:
        """Whether it may stay while it is the oldest of its lane."""
        return self.forecast.blocks(flex) <= SAFE_PART * self._blocks.total

    def _kept_from(self, lane: Lane) -> int:
        """None if nobody runs: then all are free, and who is owed has had the first turn."""
        return sum(self._kept[lane + 1 :]) if self._running else 0

    def _preempt(self, victim: Sequence) -> None:
        """The known tokens stay, and computing them again gives the same ones (decision 2)."""
        self._counters.preemptions += 1
        self._last_victim = victim.id
        self._running.remove(victim)
        self._waiting.add(victim)

    # -- what there is room for ------------------------------------------------------------------------------------

    def seats(self) -> int:
        """Interactive sequences of a typical size for whose blocks there will be room."""
        running, size = self._running, self._blocks.block_size
        if not running.interactive:
            return PLENTY
        total = self._blocks.total - self._kept_from(Lane.PRIORITY)
        some = running.sequences[:TYPICAL]
        typical = max(1, sum([self.forecast.blocks(s) for s in some]) // len(some))
        most = running.limits // size + len(running)
        peak = most if most + typical <= total else self._peak(with_flex=False)
        return max(0, total - peak) // typical

    def _peak(self, with_flex: bool) -> int:
        """Blocks that those who run will hold at most, as far as is foreseen."""
        held = self._blocks.total - self._blocks.available
        sequences = self._running.sequences
        if not with_flex and self._running.flex:
            held -= sum([self._blocks.held(s) for s in self._running.flex])
            sequences = [s for s in sequences if s.lane is not Lane.FLEX]
        return self.forecast.peak(sequences, max(0, held))
