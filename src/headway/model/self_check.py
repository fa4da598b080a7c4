"""A look at what a freshly loaded model computes: one that computes garbage is worse than one that is refused."""

from array import array
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from headway.core.errors import ModelError
from headway.core.runner import Batch, Opening, Work
from headway.core.sampling import Sampling
from headway.model.native_runner import NativeRunner

_TOKENS, _PIECE = 24, 8  # computed in pieces, each of which gives one distribution
_CERTAIN = 1e-3  # nats; any model that has learned something wavers more after a prompt without sense
_UNIFORM = 1e-4  # nats below the logarithm of the vocabulary


def check_sense(runner: NativeRunner, path: Path) -> None:
    """ModelError unless a fixed prompt gives finite logits that are neither all alike nor everywhere certain.

    It finds broken files and wrong scales, not every wrong computation: logits of a fitting spread may still be wrong.
    Uses slot 0 and the first blocks, before any request does.
    """
    entropies = [_entropy(logits) for logits in _distributions(runner, path)]
    most = float(np.log(runner.info.vocab_size))
    if min(entropies) > most - _UNIFORM:
        raise _refuse(path, "it finds all tokens equally likely")
    if max(entropies) < _CERTAIN:
        raise _refuse(path, f"it is certain of every next token (entropy {max(entropies):.1e} nats)")


def _distributions(runner: NativeRunner, path: Path) -> list[NDArray[np.float32]]:
    info = runner.info
    piece = min(_PIECE, info.max_batch_tokens)
    count = min(_TOKENS, info.context, info.blocks // info.layer_groups * info.block_size)
    ids = array("I", ((7919 * i * i + 104729 * i + 3) % info.vocab_size for i in range(count)))
    each = -(-count // info.block_size)
    tables = tuple(array("I", range(group * each, (group + 1) * each)) for group in range(info.layer_groups))
    openings = [Opening(0, Sampling(max_tokens=1, temperature=0.0), ids, count)]
    found = []
    for start in range(0, count, piece):
        runner.submit(Batch([Work(0, start, ids[start : start + piece], tables, True)], openings))
        sampled = runner.collect().sampled[0]
        openings = []
        if sampled is None or sampled.error is not None:
            raise _refuse(path, sampled.error if sampled and sampled.error else "it draws no token")
        found.append(runner.logits(0))
    return found


def _entropy(logits: NDArray[np.float32]) -> float:
    """In nats."""
    weights = np.exp(logits.astype(np.float64) - logits.max())
    shares = weights / weights.sum()
    return float(-(shares * np.log(np.maximum(shares, 1e-300))).sum())


def _refuse(path: Path, found: str) -> ModelError:
    return ModelError(
        f"model {path} was loaded but computes no sense on a test prompt: {found}. The file may be damaged, or made by "
        f"a converter that names or orders its weights otherwise."
    )
