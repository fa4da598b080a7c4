from array import array
from typing import Any

import pytest
from rig import make_request

from headway.core.events import Finish
from headway.scheduling.sequence import Sequence


def sequence(prompt: list[int], context: int = 100, **sampling: Any) -> Sequence:
    made = Sequence(make_request(1, prompt, **sampling), 0, context, frozenset({2}))
    made.room = context
    return made


def decode(made: Sequence, *tokens: int) -> list[Finish | None]:
    finishes = []
    for token in tokens:
        made.advance(made.uncomputed)
        finishes.append(made.append(token))
    return finishes


def test_lengths() -> None:
    made = sequence([5, 6, 7])
    assert (made.uncomputed, made.emitted, made.running) == (3, 0, False)
    made.advance(2)
    made.advance(1)
    assert made.append(9) is None
    assert (made.known, made.uncomputed, made.emitted) == (array("I", [5, 6, 7, 9]), 1, 1)


def test_a_token_may_only_follow_what_is_computed() -> None:
    with pytest.raises(AssertionError):
        sequence([5, 6]).append(9)


def test_computes_no_more_than_it_knows_or_has_room_for() -> None:
    with pytest.raises(AssertionError):
        sequence([5, 6]).advance(3)
    made = sequence([5, 6])
    made.room = 1
    with pytest.raises(AssertionError):
        made.advance(2)


def test_ends_on_end_id_and_stop_token_id() -> None:
    assert decode(sequence([5]), 8, 2) == [None, Finish.STOP]
    assert decode(sequence([5], stop_token_ids=(8,)), 8) == [Finish.STOP]


def test_ignore_eos_leaves_stop_token_ids() -> None:
    assert decode(sequence([5], ignore_eos=True, stop_token_ids=(8,)), 2, 8) == [None, Finish.STOP]


def test_no_end_before_min_tokens() -> None:
    assert decode(sequence([5], min_tokens=2, stop_token_ids=(8,)), 2, 8, 2) == [None, None, Finish.STOP]


def test_ends_at_max_tokens_and_at_the_context() -> None:
    assert decode(sequence([5], max_tokens=2), 8, 8) == [None, Finish.LENGTH]
    assert decode(sequence([5, 6, 7], context=4), 8) == [Finish.LENGTH]


def test_a_stop_at_the_limit_is_a_stop() -> None:
    assert decode(sequence([5], max_tokens=1), 2) == [Finish.STOP]


def test_reset_keeps_what_is_known_and_counts_recomputation() -> None:
    made = sequence([5, 6, 7])
    decode(made, 9, 9)
    made.reset()
    made.room = 100
    assert (made.uncomputed, made.emitted) == (5, 2)
    assert made.advance(3) == 3
    assert made.advance(2) == 1  # four had been computed before
