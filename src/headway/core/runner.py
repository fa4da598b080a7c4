"""The one protocol between the scheduling layer and whatever computes tokens (decision 8)."""

from array import array
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from headway.core.events import TokenLogprobs
from headway.core.sampling import Sampling


@dataclass(frozen=True, slots=True)
class RunnerInfo:
    """What a scheduler must know of a runner. Sizes in tokens unless named otherwise."""

    fingerprint: str  # weights + runner + instruction set + KV type: equal fingerprint and request => equal tokens
    invariant: bool  # a row's bits do not depend on batch, chunking, cache or threads (decision 2)
    vocab_size: int
    context: int  # longest sequence
    block_size: int  # tokens in a KV block
    blocks: int  # KV blocks in the pool; each holds the K and V of one layer group
    slots: int  # sequences that can hold runner state at once
    max_batch_tokens: int  # most tokens computed in one step
    # Layers of equal attention span share a block table (if they are many, a number of tables, so that all groups have
    # blocks of equal size); per group, keys a query sees, itself included; 0: all.
    windows: tuple[int, ...] = (0,)
    end_ids: tuple[int, ...] = ()  # end-of-sequence ids: union of all sources
    layer_macs: int = 0  # multiply-adds with weights that one token costs in all layers; 0: unknown
    head_macs: int = 0  # and, where it is sampled, in the output head
    bytes_per_token: int = 0  # weights read to decode one token alone
    # Per attention span (as in `windows`, but of every layer): bytes of K and V that a token has in the layers with it.
    kv_bytes: tuple[tuple[int, int], ...] = ()

    @property
    def layer_groups(self) -> int:
        return len(self.windows)

    def kv_bytes_read(self, context: int) -> int:
        """Keys and values that a query sees after `context` tokens."""
        return sum(size * min(context, span or context) for span, size in self.kv_bytes)


@dataclass(frozen=True, slots=True)
class Opening:
    """Gives a slot to a sequence. The runner derives what it needs (penalty counts, ...) from these ids and drops the
    slot's former state."""

    slot: int
    sampling: Sampling
    known: "array[int]"  # array('I'): prompt and emitted ids so far
    prompt_length: int  # the first so many of `known` are the prompt


class Work(
    msgspec.Struct, frozen=True, gc=False
):  # made for each sequence in each step: a frozen dataclass takes 5x as long
    """One sequence's part of a step: compute `tokens` at positions start, start+1, ...

    K and V of positions < start are already in the blocks that `tables` names, as far back as the layers see; what a
    table names for earlier positions means nothing. The tables also cover the new tokens.
    With `sample`, the runner draws the token that follows the last one and remembers it in the slot.
    """

    slot: int
    start: int
    tokens: "array[int]"  # array('I'), not empty
    tables: tuple["array[int]", ...]  # one array('I') of block indices per layer group
    sample: bool


@dataclass(frozen=True, slots=True)
class Batch:
    """One step. Openings are applied before the work."""

    work: list[Work]
    openings: list[Opening] = field(default_factory=list)

    @property
    def token_count(self) -> int:
        return sum(len(w.tokens) for w in self.work)


class Sampled(msgspec.Struct, frozen=True, gc=False):  # as often as Work
    """A drawn token. `error` is set, and `token` meaningless, where this sequence alone failed. `forced` follow it for
    certain, by the sequence's grammar, and were not drawn: they are known now, and computed in the next step."""

    token: int
    logprobs: TokenLogprobs | None = None
    error: str | None = None
    forced: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class StepResult:
    """`sampled[i]` belongs to `batch.work[i]`; None where that work did not ask for a sample and nothing failed, or
    where its grammar is still being compiled: then the draw is put off, and the last token is to be computed again."""

    sampled: list[Sampled | None]
    compute_s: float  # seconds inside the runner


class Runner(Protocol):
    """Computes steps. One step at a time: `submit` returns at once, `collect` blocks (GIL released) for its result."""

    @property
    def info(self) -> RunnerInfo: ...

    def submit(self, batch: Batch) -> None: ...

    def collect(self) -> StepResult: ...

    def close(self) -> None: ...
