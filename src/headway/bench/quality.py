"""How near a model as it is computed comes to the same model in float32: the share of equal choices, and the ratio of
perplexities, on 3,108 tokens (of the default model) of English prose, teacher-forced in windows of at most 512."""

import math
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from headway.core.config import EngineSettings
from headway.core.errors import ModelError
from headway.core.runner import Batch, Opening, Work
from headway.core.sampling import Sampling
from headway.model.load import load_exact_runner, load_runner
from headway.model.text import load_text

if TYPE_CHECKING:
    from headway.model.native_runner import NativeRunner

TEXT = Path(__file__).with_name("quality_text.txt")  # Alice's Adventures in Wonderland, chapter V: public domain
WINDOW = 512
MOST_WINDOWS = 32  # computed in one step
REPORT_EVERY = 64  # positions

Progress = Callable[[str], None]
Windows = Sequence[Sequence[int]]


@dataclass(frozen=True, slots=True)
class Reference:
    """Of float32, at each position of each window: its choice, and -log p of the next token (not of the last)."""

    choices: Sequence[Sequence[int]]
    surprises: Sequence[Sequence[float]]


@dataclass(frozen=True, slots=True)
class Quality:
    tokens: int
    same: float  # share of positions with the same most likely token
    perplexity_ratio: float  # to that in float32; above 1 is worse

    def as_json(self) -> dict[str, object]:
        return asdict(self)


def measure(path: Path, settings: EngineSettings, progress: Progress) -> Quality:
    """Of the model with `settings`. The reference takes 4 bytes of memory a weight. Raises ModelError."""
    text = load_text(path)
    ids = text.tokenizer.encode(TEXT.read_text(encoding="utf-8"), add_special=False)
    size = min(WINDOW, text.context)
    windows = [ids[start : start + size] for start in range(0, len(ids), size)][:MOST_WINDOWS]
    room = settings.model_copy(update={"max_sequences": len(windows), "max_step_tokens": len(windows), "context": None})
    exact = load_exact_runner(path, room)
    try:
        expected = reference(exact, windows, lambda done: progress(f"float32: {done:.0%}"))
    finally:
        exact.close()
    runner = load_runner(path, room)
    try:
        return judge(runner, windows, expected, lambda done: progress(f"as computed: {done:.0%}"))
    finally:
        runner.close()


def reference(
    runner: "NativeRunner", windows: Windows, done: Callable[[float], None] = lambda share: None
) -> Reference:
    """What the runner chooses and expects. `done` hears of the share that is."""
    choices: list[list[int]] = [[] for _ in windows]
    surprises: list[list[float]] = [[] for _ in windows]
    for window, position, logits, token in _forced(runner, windows, done):
        choices[window].append(token)
        if position + 1 < len(windows[window]):
            surprises[window].append(_surprise(logits, windows[window][position + 1]))
    return Reference(choices, surprises)


def judge(
    runner: "NativeRunner", windows: Windows, expected: Reference, done: Callable[[float], None] = lambda share: None
) -> Quality:
    """The runner beside the reference."""
    found = reference(runner, windows, done)
    choices = zip(chain.from_iterable(found.choices), chain.from_iterable(expected.choices), strict=True)
    surprises = zip(chain.from_iterable(found.surprises), chain.from_iterable(expected.surprises), strict=True)
    same = [a == b for a, b in choices]
    more = [a - b for a, b in surprises]
    return Quality(len(same), sum(same) / len(same), math.exp(sum(more) / len(more)))


def _forced(
    runner: "NativeRunner", windows: Windows, done: Callable[[float], None]
) -> Iterator[tuple[int, int, NDArray[np.float32], int]]:
    """Window, position, the logits after it and the most likely token: one token of every window a step."""
    longest = max(map(len, windows))
    blocks = -(-longest // runner.info.block_size)
    groups = runner.info.layer_groups
    if len(windows) * blocks * groups > runner.info.blocks:
        raise ModelError(f"engine.kv_memory_mb is too small: quality is measured on {len(windows)} x {longest} tokens")
    known = [array("I", window) for window in windows]
    each = [array("I", range(i * blocks, (i + 1) * blocks)) for i in range(len(windows) * groups)]
    tables = [tuple(each[i : i + groups]) for i in range(0, len(each), groups)]
    greedy = Sampling(max_tokens=1, temperature=0.0)
    openings = [Opening(i, greedy, ids, len(ids)) for i, ids in enumerate(known)]
    for position in range(longest):
        if position % REPORT_EVERY == 0:
            done(position / longest)
        live = [i for i, ids in enumerate(known) if position < len(ids)]
        work = [Work(i, position, known[i][position : position + 1], tables[i], True) for i in live]
        runner.submit(Batch(work, openings))
        openings = []
        for row, (i, sampled) in enumerate(zip(live, runner.collect().sampled, strict=True)):
            assert sampled is not None and sampled.error is None, sampled
            yield i, position, runner.logits(row), sampled.token


def _surprise(logits: NDArray[np.float32], token: int) -> float:
    """-log p(token)."""
    top = logits.max()
    return float(top + np.log(np.exp(logits - top).sum()) - logits[token])
