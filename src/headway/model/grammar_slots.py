"""Grammar state of the sequences in a runner's slots, derived from their ids and nothing else."""

from array import array
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet

import llguidance
import llguidance.numpy
import numpy as np
from numpy.typing import NDArray

from headway.core.errors import HeadwayError
from headway.model.grammar import GrammarError, Grammars, reason


class _State:
    """One sequence's: its matcher once it is compiled, and what it has consumed."""

    def __init__(
        self, source: str, output: "array[int]", jump: bool, compiling: "Future[llguidance.LLMatcher]"
    ) -> None:
        self.source = source
        self.output = output
        self.jump = jump
        self.compiling = compiling


class GrammarSlots:
    """`masks` is [slots, ceil(vocab / 32)] uint32: a bit for each token, set where the slot's grammar allows it.

    Compiling and masks run on threads of their own, so that neither holds up a step; what a slot's state is follows
    from the ids it was opened with and those it was given, so that a sequence that comes back after a preemption, or is
    replayed, goes on as if nothing had been.
    """

    def __init__(self, load: Callable[[], Grammars], slots: int, vocab_size: int, threads: int) -> None:
        """`load` makes the grammars of the model's tokenizer, when the first sequence needs them."""
        self._load = load
        self._grammars: Grammars | None = None
        self._shape = (slots, -(-vocab_size // 32))
        self._states: dict[int, _State] = {}
        self._masks: NDArray[np.uint32] | None = None
        self._compiler = ThreadPoolExecutor(1, thread_name_prefix="grammar-compile")
        self._filler = ThreadPoolExecutor(1, thread_name_prefix="grammar-masks")
        self._threads = threads
        self._executor: llguidance.LLExecutor | None = None

    @property
    def masks(self) -> NDArray[np.uint32]:
        if self._masks is None:  # no memory for who never asks for a grammar
            self._masks = np.zeros(self._shape, np.uint32)
        return self._masks

    def open(self, slot: int, source: str | None, output: "array[int]", jump: bool) -> None:
        """Gives the slot to a sequence that has emitted `output`; drops the former one's state. Without `source` it has
        no grammar. `jump`: forced tokens are to be taken without a draw."""
        self._states.pop(slot, None)
        if source is not None:
            compiling = self._compiler.submit(self._matcher, source, output)
            self._states[slot] = _State(source, output, jump, compiling)

    def has(self, slot: int) -> bool:
        return slot in self._states

    def ready(self, slot: int, patience_s: float) -> bool:
        """Whether the slot's grammar is compiled, waiting for it that long. Raises HeadwayError if it cannot be."""
        try:
            self._states[slot].compiling.result(patience_s)
        except NotYet:
            return False
        return True

    def fill(self, slots: Sequence[int]) -> "Future[dict[int, str]]":
        """Writes the masks of these slots, which are ready, on another thread; gives the errors of those without."""
        # The masks are looked up here: made by whichever thread came first, they could be made twice.
        return self._filler.submit(self._fill, slots, self.masks.view(np.int32))

    def take(self, slot: int, token: int) -> tuple[int, ...]:
        """The slot's sequence has got `token`; the tokens that follow it for certain, which the slot has taken too."""
        state = self._states[slot]
        matcher = state.compiling.result()
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
        for pool in (self._compiler, self._filler):
            pool.shutdown(wait=True, cancel_futures=True)

    # -- on the compiling thread -----------------------------------------------------------------------------------

    def _matcher(self, source: str, output: "array[int]") -> llguidance.LLMatcher:
        if self._grammars is None:
            self._grammars = self._load()
        return _advanced(self._grammars.matcher(source), output)

    # -- on the masks' thread --------------------------------------------------------------------------------------

    def _fill(self, slots: Sequence[int], masks: NDArray[np.int32]) -> dict[int, str]:
        if self._executor is None:
            self._executor = llguidance.LLExecutor(self._threads)
        states = [(slot, self._states[slot]) for slot in slots]
        llguidance.numpy.fill_next_token_bitmask_par(
            self._executor, [(state.compiling.result(), slot) for slot, state in states], masks
        )
        return {
            slot: problem
            for slot, state in states
            if state.compiling.result().is_error() and (problem := self._again(slot, state, masks))
        }

    def _again(self, slot: int, state: _State, masks: NDArray[np.int32]) -> str | None:
        """Another sequence may have filled up the lexer that copies of a grammar share: this one's error counts only if
        it comes up with a lexer of its own. None: it does not."""
        assert self._grammars is not None
        try:
            alone = _advanced(self._grammars.compile(state.source), state.output)
        except HeadwayError as error:
            return error.message
        llguidance.numpy.fill_next_token_bitmask(alone, masks, slot)
        if alone.is_error():
            return f"the grammar allows nothing more here: {reason(alone)}"
        state.compiling = Future()
        state.compiling.set_result(alone)
        return None


def _advanced(matcher: llguidance.LLMatcher, output: "array[int]") -> llguidance.LLMatcher:
    """The matcher after `output`. Raises GrammarError if that does not match."""
    if output and not matcher.consume_tokens(list(output)):
        raise GrammarError(f"what has been emitted does not match the grammar: {reason(matcher)}")
    return matcher
