"""What sampling takes of a step: the same sequences in the same slots, drawn greedily and with everything by turns."""

import random
import statistics
from array import array
from collections.abc import Sequence

import msgspec

from headway.core.errors import ModelError
from headway.core.runner import Batch, Opening, Runner, RunnerInfo, Work
from headway.core.sampling import Sampling

GREEDY = Sampling(max_tokens=1, temperature=0.0, ignore_eos=True)
FULL = Sampling(
    max_tokens=1,
    temperature=0.8,
    top_p=0.95,
    repetition_penalty=1.1,
    presence_penalty=0.1,
    frequency_penalty=0.1,
    ignore_eos=True,
)


def blocks_needed(info: RunnerInfo, sequences: int, context: int, rounds: int, steps: int) -> int:
    return sequences * -(-(context + 2 * rounds * (steps + 1)) // info.block_size)


def sampling_share(runner: Runner, sequences: int, context: int, rounds: int = 10, steps: int = 8) -> float:
    """Of the time in the runner, what FULL takes beyond GREEDY: the median of `rounds` pairs of `steps` steps.

    Prompts are random, which leaves the nucleus wide: text costs less. It uses the first slots and blocks, so no engine
    may use the runner from then on. ModelError if a token could not be drawn.
    """
    crowd = _Crowd(runner, sequences, blocks_needed(runner.info, 1, context, rounds, steps))
    crowd.prefill(context)
    shares = []
    for _ in range(rounds):
        seconds = []
        for sampling in (GREEDY, FULL):
            crowd.open(sampling)
            crowd.step()  # opens the slots, and counts what penalties need
            seconds.append(sum(crowd.step() for _ in range(steps)))
        shares.append(1 - seconds[0] / seconds[1])
    return statistics.median(shares)


class _Crowd:
    """Sequences that are always computed together, each in a slot and blocks of its own."""

    def __init__(self, runner: Runner, sequences: int, blocks: int) -> None:
        self._runner = runner
        groups = range(runner.info.layer_groups)
        spans = (array("I", range(slot * blocks, (slot + 1) * blocks)) for slot in range(sequences))
        self._tables = [tuple(span for _ in groups) for span in spans]
        self._known = [array("I") for _ in range(sequences)]
        self._prompt = 0
        self._openings: list[Opening] = []

    def prefill(self, context: int) -> None:
        chance, most = random.Random(0), self._runner.info.max_batch_tokens
        self._prompt = context
        for known in self._known:
            known.extend(chance.randrange(self._runner.info.vocab_size) for _ in range(context))
        self.open(GREEDY)
        openings, self._openings = self._openings, []
        for slot, known in enumerate(self._known):
            for start in range(0, context, most):
                last = start + most >= context
                work = Work(slot, start, known[start : start + most], self._tables[slot], last)
                self._compute([work], [openings[slot]] if start == 0 else [])

    def open(self, sampling: Sampling) -> None:
        """From the next step on all are drawn so."""
        self._openings = [
            Opening(slot, msgspec.structs.replace(sampling, seed=slot), array("I", known), self._prompt)
            for slot, known in enumerate(self._known)
        ]

    def step(self) -> float:
        """One more token for each. The seconds in the runner."""
        openings, self._openings = self._openings, []
        work = [
            Work(slot, len(known) - 1, known[-1:], self._tables[slot], True) for slot, known in enumerate(self._known)
        ]
        return self._compute(work, openings)

    def _compute(self, work: Sequence[Work], openings: list[Opening]) -> float:
        self._runner.submit(Batch(list(work), openings))
        result = self._runner.collect()
        for part, sampled in zip(work, result.sampled, strict=True):
            if sampled is not None and sampled.error is not None:
                raise ModelError(f"no token could be drawn: {sampled.error}")
            if sampled is not None:
                self._known[part.slot].append(sampled.token)
        return result.compute_s
