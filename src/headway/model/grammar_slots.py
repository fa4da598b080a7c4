"""Grammar state of the sequences in a runner's slots, derived from their ids and nothing else."""

import time
from array import array
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from concurrent.futures import TimeoutError as NotYet

import llguidance
import numpy as np
from numpy.typing import NDArray

from headway.core.errors import HeadwayError
from headway.core.priority import yield_to_streams
from headway.model.grammar import GrammarError, Grammars, reason

# A mask takes about 0.05 ms. One that took so long (of a processor's time) is computed apart from then on, so that it
# delays nobody else's; and so long is too long.
SLOW_S = 0.01
TOO_SLOW_S = 2.0


class _State:
    """One sequence's: its matcher once that is compiled, its ids, and the mask of its next token."""

    def __init__(
        self, source: str, output: "array[int]", jump: bool, compiling: "Future[llguidance.LLMatcher]", words: int
    ) -> None:
        self.source = source
        self.output = output
        self.jump = jump
        self.compiling = compiling
        self.mask = np.zeros(words, np.uint32)
        self.filling = False
        self.fresh = False  # `mask`, or `problem`, is what is wanted
        self.problem: str | None = None
        self.late = False  # not fresh when it was to be drawn from
        self.slow = False

    @property
    def matcher(self) -> llguidance.LLMatcher:
        return self.compiling.result()


class GrammarSlots:
    """`masks` is [slots, ceil(vocab / 32)] uint32: a bit to each token, set where the slot's grammar allows it.

    Compiling and masks run on threads of their own, beside the step. Whoever is late is left out of a draw and drawn
    for in a later step, so that no grammar holds up others. What a slot's state is follows from the ids it was opened
    with and those it was given: a sequence that comes back after a preemption, or is replayed, goes on as if nothing
    had been.
    """

    def __init__(self, load: Callable[[], Grammars], slots: int, vocab_size: int, threads: int) -> None:
        """`load` makes the grammars of the model's tokenizer, when the first sequence needs them."""
        self._load = load
        self._grammars: Grammars | None = None
        self._shape = (slots, -(-vocab_size // 32))
        self._states: dict[int, _State] = {}
        self._masks: NDArray[np.uint32] | None = None
        self._threads = threads
        self._compiler = ThreadPoolExecutor(1, thread_name_prefix="grammar-compile", initializer=yield_to_streams)
        self._filler = ThreadPoolExecutor(threads, thread_name_prefix="grammar-masks")
        self._slow_filler = ThreadPoolExecutor(1, thread_name_prefix="grammar-slow", initializer=yield_to_streams)
        self._jobs: list[Future[None]] = []

    @property
    def masks(self) -> NDArray[np.uint32]:
        """Once a slot has been opened with a grammar."""
        assert self._masks is not None
        return self._masks

    def open(self, slot: int, source: str | None, output: "array[int]", jump: bool) -> None:
        """Gives the slot to a sequence that has emitted `output`; drops the former one's state. Without `source` it has
        no grammar. `jump`: forced tokens are to be taken without a draw."""
        self._states.pop(slot, None)
        if source is not None:
            if self._masks is None:  # no memory for who never asks for a grammar; before any other thread looks for it
                self._masks = np.zeros(self._shape, np.uint32)
            compiling = self._compiler.submit(self._matcher, source, output)
            self._states[slot] = _State(source, output, jump, compiling, self._shape[1])

    def has(self, slot: int) -> bool:
        return slot in self._states

    def ready(self, slot: int, patience_s: float) -> bool:
        """Whether the slot's grammar is compiled, waiting for it that long. Raises HeadwayError if it cannot be."""
        try:
            self._states[slot].compiling.result(patience_s)
        except NotYet:
            return False
        return True

    def fill(self, slots: Sequence[int]) -> None:
        """Has the masks of these slots, which are ready, computed on other threads."""
        self._jobs = [job for job in self._jobs if not job.done()]
        todo = [s for slot in slots if not ((s := self._states[slot]).fresh or s.filling)]
        for state in todo:
            state.filling = True
        quick = [state for state in todo if not state.slow]
        for part in range(min(self._threads, len(quick))):
            self._jobs.append(self._filler.submit(self._compute, quick[part :: self._threads]))
        for state in todo:
            if state.slow:  # nobody waits for it
                self._slow_filler.submit(self._compute, [state])

    def collect(self, slots: Sequence[int], patience_s: float) -> None:
        """Writes the masks of these slots, waiting for them that long; of who is late, a mask that allows nothing."""
        if not all(self._states[slot].fresh for slot in slots):
            wait([job for job in self._jobs if not job.done()], patience_s)
        for slot in slots:
            state = self._states[slot]
            state.late = not state.fresh
            self.masks[slot] = 0 if state.late else state.mask

    def late(self, slot: int) -> bool:
        """Whether the last `collect` had no mask for the slot."""
        return self._states[slot].late

    def problem(self, slot: int) -> str | None:
        """Why the slot's sequence cannot go on."""
        return self._states[slot].problem

    def take(self, slot: int, token: int) -> tuple[int, ...]:
        """The slot's sequence has got `token`; the tokens that follow it for certain, which the slot has taken too."""
        state = self._states[slot]
        matcher = state.matcher
        state.fresh = False
        state.output.append(token)
        if not matcher.consume_token(token) or not state.jump or matcher.is_stopped():
            return ()
        forced = matcher.compute_ff_tokens()
        if not forced:
            return ()
        taken = forced[: matcher.try_consume_tokens(forced)]
        state.output.extend(taken)
        return tuple(taken)

    def close(self) -> None:
        self._states.clear()
        for pool in (self._compiler, self._filler, self._slow_filler):
            pool.shutdown(wait=True, cancel_futures=True)

    # -- on other threads ------------------------------------------------------------------------------------------

    def _matcher(self, source: str, output: "array[int]") -> llguidance.LLMatcher:
        if self._grammars is None:
            self._grammars = self._load()
        return _advanced(self._grammars.matcher(source), output)

    def _compute(self, states: list[_State]) -> None:
        for state in states:
            start = time.thread_time()
            _fill(state.matcher, state.mask)
            if state.matcher.is_error():
                state.problem = self._again(state)
            took = time.thread_time() - start
            if took > TOO_SLOW_S and state.problem is None:
                state.problem = f"the grammar is too complex: it took {took:.1f} s to say what may come next"
            state.slow = took > SLOW_S
            state.filling, state.fresh = False, True

    def _again(self, state: _State) -> str | None:
        """Another sequence may have filled up the lexer that copies of a grammar share: this one's error counts only if
        it comes up with a lexer of its own. None: it does not."""
        assert self._grammars is not None
        try:
            alone = _advanced(self._grammars.compile(state.source), state.output)
        except HeadwayError as error:
            return error.message
        _fill(alone, state.mask)
        if alone.is_error():
            return f"the grammar allows nothing more here: {reason(alone)}"
        state.compiling = Future()
        state.compiling.set_result(alone)
        return None


def _fill(matcher: llguidance.LLMatcher, mask: NDArray[np.uint32]) -> None:
    """Releases the GIL."""
    matcher.unsafe_compute_mask_ptr(mask.ctypes.data, mask.nbytes)


def _advanced(matcher: llguidance.LLMatcher, output: "array[int]") -> llguidance.LLMatcher:
    """The matcher after `output`. Raises GrammarError if that does not match."""
    if output and not matcher.consume_tokens(list(output)):
        raise GrammarError(f"what has been emitted does not match the grammar: {reason(matcher)}")
    return matcher
