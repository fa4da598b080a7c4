"""A deterministic oracle in place of a model: any scheduling bug changes its tokens or trips an assertion.

Its "KV" is the position and the token id that were computed into each (block, offset). To draw a token it reads
the whole context back through the block tables and hashes it, so that a wrong table, a block shared too early or
overwritten, a skipped or repeated chunk, or a slot mixed up is seen at once. Time is programmable.
"""

import time
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b

from headway.core.clock import Clock, ManualClock
from headway.core.errors import HeadwayError
from headway.core.events import TokenLogprobs
from headway.core.runner import Batch, Opening, RunnerInfo, Sampled, StepResult, Work
from headway.core.sampling import Sampling
from headway.model.grammar import GrammarError, Grammars
from headway.model.grammar_slots import GrammarSlots

UNWRITTEN = -1
_COMPILE_S = 60.0  # nothing here needs so long

StepTime = Callable[[Batch], float]  # seconds a step takes
Fault = Callable[[Sampling, int], str | None]  # error of the sample at an absolute position, if it is to fail


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """What the oracle may say: ids of [first, last], and an end id with `end_probability` at each position."""

    first: int
    last: int
    end_ids: tuple[int, ...] = ()
    end_probability: float = 0.0

    def next_token(
        self, context: "array[int]", sampling: Sampling, prompt_length: int, allowed: Sequence[int] | None = None
    ) -> int:
        """The token that follows `context`: a function of the request alone. Greedy ignores seed and choice. `allowed`
        is what a grammar lets through, at least one."""
        seed, choice = (0, 0) if sampling.temperature == 0 else (sampling.seed, sampling.choice)
        key = f"{seed}/{choice}/{len(context)}".encode()
        digest = blake2b(context.tobytes(), digest_size=16, key=key[:64]).digest()
        drawn, ending = int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:], "little")
        masked = len(context) - prompt_length < sampling.min_tokens
        if allowed is not None:
            texts = [token for token in allowed if token not in self.end_ids]
            held = masked or sampling.ignore_eos or not ending < self.end_probability * 2.0**64
            if texts and (held or len(texts) == len(allowed)):
                return texts[drawn % len(texts)]
            return next(token for token in allowed if token in self.end_ids)
        if self.end_ids and not masked and ending < self.end_probability * 2.0**64:
            return self.end_ids[ending % len(self.end_ids)]
        span = self.last - self.first + 1
        token = self.first + drawn % span
        if masked:
            banned = {*self.end_ids, *sampling.stop_token_ids}
            token = next((t for i in range(span) if (t := self.first + (drawn + i) % span) not in banned), token)
        return token

    def logprobs(self, token: int, count: int) -> TokenLogprobs:
        """Plausible numbers: the chosen token first, its followers in the range less likely."""
        span = self.last - self.first + 1
        others = [self.first + (token + i) % span for i in range(1, count + 1)]
        ids = [token, *(t for t in others if t != token)][:count]
        return TokenLogprobs(-0.25, [(t, -0.25 * (rank + 1)) for rank, t in enumerate(ids)])


@dataclass(slots=True)
class _Slot:
    """What a sequence's runner state amounts to here."""

    sampling: Sampling
    known: "array[int]"
    prompt_length: int


def default_info(**changes: object) -> RunnerInfo:
    """A small model; name the fields that matter to you. `blocks`: for each layer group."""
    fields: dict[str, object] = {
        "fingerprint": "fake",
        "invariant": True,
        "vocab_size": 1024,
        "context": 512,
        "block_size": 16,
        "blocks": 256,
        "slots": 64,
        "max_batch_tokens": 512,
        "end_ids": (2,),
    }
    fields |= changes
    fields["blocks"] *= len(fields.get("windows", (0,)))  # type: ignore[operator,arg-type]
    return RunnerInfo(**fields)  # type: ignore[arg-type]


class FakeRunner:
    """Implements the Runner protocol. With a ManualClock a step advances it, with any other it sleeps."""

    def __init__(
        self,
        info: RunnerInfo,
        *,
        clock: Clock | None = None,
        step_time: StepTime | None = None,
        tokens: tuple[int, int] | None = None,
        end_probability: float = 0.0,
        fault: Fault | None = None,
        grammars: Callable[[], Grammars] | None = None,
    ) -> None:
        """`grammars`: of the tokenizer that gives the ids a text; without it requests with a grammar fail."""
        first, last = tokens or (max([2, *info.end_ids]) + 1, info.vocab_size - 1)
        self.vocabulary = Vocabulary(first, last, info.end_ids, end_probability)
        self._info = info
        self._clock = clock
        self._step_time = step_time
        self._fault = fault
        self._slots: dict[int, _Slot] = {}
        self._grammars = GrammarSlots(grammars or _no_grammars, info.slots, info.vocab_size, 1)
        cells = info.blocks * info.block_size
        self._positions = array("i", [UNWRITTEN]) * cells  # the "K" ...
        self._tokens = array("I", [0]) * cells  # ... and the "V"
        self._count = array("i", range(info.context))
        self._batch: Batch | None = None
        self._submitted = 0.0

    @property
    def info(self) -> RunnerInfo:
        return self._info

    def submit(self, batch: Batch) -> None:
        """Takes a step. It is computed in `collect`, so that a table changed in between is noticed too."""
        assert self._batch is None, "one step at a time"
        assert batch.work, "an empty batch"
        assert batch.token_count <= self._info.max_batch_tokens, "more tokens than a step may have"
        self._batch = batch
        self._submitted = time.monotonic()

    def collect(self) -> StepResult:
        batch, self._batch = self._batch, None
        assert batch is not None, "nothing was submitted"
        for opening in batch.openings:
            self._open(opening)
        assert len({work.slot for work in batch.work}) == len(batch.work), "a slot twice in one step"
        self._check_sharing(batch)
        for work in batch.work:
            self._write(work)
        sampled = [self._result(work) for work in batch.work]
        return StepResult(sampled, self._spend(batch))

    def close(self) -> None:
        self._slots.clear()
        self._grammars.close()

    def _open(self, opening: Opening) -> None:
        assert 0 <= opening.slot < self._info.slots, opening.slot
        assert 0 < opening.prompt_length <= len(opening.known) < self._info.context
        self._slots[opening.slot] = _Slot(opening.sampling, opening.known[:], opening.prompt_length)
        output, sampling = opening.known[opening.prompt_length :], opening.sampling
        self._grammars.open(opening.slot, sampling.grammar, output, jump=sampling.logprobs is None)

    def _check_sharing(self, batch: Batch) -> None:
        """A block that one work writes for a layer group must be in no other table."""
        size = self._info.block_size
        tables = [(work, group, table) for work in batch.work for group, table in enumerate(work.tables)]
        writers: dict[int, tuple[int, int]] = {}
        for work, group, table in tables:
            owner, end = (work.slot, group), work.start + len(work.tokens)
            seen = table[self._first_seen(work, group) // size :]
            assert end <= len(table) * size, f"the tables do not cover slot {work.slot}"
            assert len(set(seen)) == len(seen) and max(table) < self._info.blocks, "a bad block table"
            for block in table[work.start // size : -(-end // size)]:
                assert writers.setdefault(block, owner) == owner, f"block {block} has two writers"
        for work, group, table in tables:
            owner = (work.slot, group)
            for block in table[self._first_seen(work, group) // size :]:
                assert writers.get(block, owner) == owner, f"block {block} is read while it is written"

    def _write(self, work: Work) -> None:
        slot = self._slots.get(work.slot)
        assert slot is not None, f"slot {work.slot} was never opened"
        end = work.start + len(work.tokens)
        assert work.tokens and work.tokens == slot.known[work.start : end], f"not the tokens of slot {work.slot}"
        assert max(work.tokens) < self._info.vocab_size
        assert not work.sample or end == len(slot.known), "sampled before all known tokens were computed"
        assert len(work.tables) == self._info.layer_groups
        size = self._info.block_size
        for table in work.tables:
            for position, token in enumerate(work.tokens, work.start):
                cell = table[position // size] * size + position % size
                self._positions[cell] = position
                self._tokens[cell] = token

    def _read(self, work: Work) -> "array[int]":
        """The context as the cache has it, through the block tables."""
        length = work.start + len(work.tokens)
        contexts = [self._read_group(work, group, length) for group in range(self._info.layer_groups)]
        assert all(context == contexts[0] for context in contexts), "the layer groups disagree"
        return contexts[0]

    def _first_seen(self, work: Work, group: int) -> int:
        """The first position that any of its tokens sees."""
        window = self._info.windows[group]
        return max(0, work.start - window + 1) if window else 0

    def _read_group(self, work: Work, group: int, length: int) -> "array[int]":
        """What a window hides is taken from the slot."""
        size, first = self._info.block_size, self._first_seen(work, group)
        positions, tokens = array("i"), array("I")
        start = first // size * size
        for block in work.tables[group][first // size : -(-length // size)]:
            positions += self._positions[block * size : (block + 1) * size]
            tokens += self._tokens[block * size : (block + 1) * size]
        wrong = positions[first - start : length - start] != self._count[first:length]
        assert not wrong, f"slot {work.slot} reads unwritten or foreign KV: {positions}"
        return self._slots[work.slot].known[:first] + tokens[first - start : length - start]

    def _result(self, work: Work) -> Sampled | None:
        context = self._read(work)  # a real model reads the cache for every row, sampled or not
        if not work.sample:
            return None
        slot = self._slots[work.slot]
        fault = self._fault(slot.sampling, len(context)) if self._fault else None
        if fault is not None:
            return Sampled(0, error=fault)
        try:
            allowed = self._allowed(work.slot) if self._grammars.has(work.slot) else None
        except HeadwayError as error:
            return Sampled(0, error=error.message)
        token = self.vocabulary.next_token(context, slot.sampling, slot.prompt_length, allowed)
        forced = () if allowed is None else self._grammars.take(work.slot, token)
        slot.known.extend((token, *forced))
        count = slot.sampling.logprobs
        return Sampled(token, None if count is None else self.vocabulary.logprobs(token, count), forced=forced)

    def _allowed(self, slot: int) -> list[int]:
        """Ids that the slot's grammar lets through. Raises HeadwayError."""
        self._grammars.ready(slot, _COMPILE_S)
        self._grammars.fill([slot])
        self._grammars.collect([slot], _COMPILE_S)
        problem = self._grammars.problem(slot)
        if problem is not None:
            raise GrammarError(problem)
        row = self._grammars.masks[slot]
        return [token for token in range(self._info.vocab_size) if row[token // 32] >> (token % 32) & 1]

    def _spend(self, batch: Batch) -> float:
        seconds = self._step_time(batch) if self._step_time else 0.0
        if isinstance(self._clock, ManualClock):
            self._clock.advance(seconds)
        elif self._clock is not None or self._step_time is not None:
            time.sleep(max(0.0, self._submitted + seconds - time.monotonic()))
        return seconds


def _no_grammars() -> Grammars:
    raise GrammarError("this runner's ids have no text, so that no grammar can apply to them")
