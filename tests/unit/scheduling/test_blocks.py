import random

import pytest
from rig import make_request

from headway.model.fake_runner import default_info
from headway.scheduling.blocks import KvBlocks
from headway.scheduling.sequence import Sequence

PROMPT = list(range(10, 30))  # five blocks of four


def kv(blocks: int = 8, prefix_cache: bool = True, windows: tuple[int, ...] = (0,)) -> KvBlocks:
    return KvBlocks(default_info(blocks=blocks, block_size=4, windows=windows), prefix_cache)


def sequence(prompt: list[int], serial: int = 0, salt: bytes = b"") -> Sequence:
    return Sequence(make_request(serial, prompt, salt=salt), serial, 100, frozenset())


def computed(blocks: KvBlocks, prompt: list[int], salt: bytes = b"") -> Sequence:
    """An admitted sequence whose whole prompt has been computed and committed."""
    made = sequence(prompt, salt=salt)
    assert blocks.admit(made, 0)
    made.advance(made.uncomputed)
    blocks.commit(made)
    return made


def test_admit_covers_all_known_tokens_and_release_returns_them() -> None:
    blocks = kv()
    one = sequence(PROMPT[:9])
    assert blocks.admit(one, 0)
    assert (len(one.tables[0]), one.room, blocks.available) == (3, 12, 5)
    blocks.check_integrity([one])
    blocks.release(one)
    blocks.check_integrity([])
    assert blocks.available == 8 and not one.tables


def test_admit_wants_headroom_and_changes_nothing_in_vain() -> None:
    blocks = kv(blocks=4)
    one = sequence(PROMPT[:9])
    assert not blocks.admit(one, 2)
    blocks.check_integrity([])
    assert blocks.admit(one, 1)


def test_grow() -> None:
    blocks = kv(blocks=2, windows=(0, 0))
    one = sequence(PROMPT[:3])
    assert blocks.admit(one, 0)
    assert blocks.grow(one, 8) and one.room == 8
    assert not blocks.grow(one, 9)
    blocks.check_integrity([one])


def test_a_hit_leaves_a_token_to_compute() -> None:
    blocks = kv(blocks=12)
    blocks.release(computed(blocks, PROMPT))
    again, longer = sequence(PROMPT), sequence([*PROMPT, 99])
    assert blocks.admit(again, 0) and blocks.admit(longer, 0)
    assert (again.computed, longer.computed) == (16, 20)
    assert again.tables[0][:4] == longer.tables[0][:4]
    blocks.check_integrity([again, longer])


def test_blocks_are_not_shared_before_their_step_is_committed() -> None:
    blocks = kv(blocks=12)
    one, other = sequence(PROMPT), sequence(PROMPT)
    assert blocks.admit(one, 0) and blocks.admit(other, 0)
    assert other.computed == 0 and not set(one.tables[0]) & set(other.tables[0])


def test_a_twin_stays_private() -> None:
    blocks = kv(blocks=12)
    one, other = sequence(PROMPT), sequence(PROMPT)
    assert blocks.admit(one, 0) and blocks.admit(other, 0)
    for each in (one, other):
        each.advance(20)
        blocks.commit(each)
    blocks.check_integrity([one, other])
    third = sequence(PROMPT)
    assert blocks.admit(third, 0) and third.tables[0][:4] == one.tables[0][:4]
    for each in (other, one, third):
        blocks.release(each)
        blocks.check_integrity([s for s in (one, other, third) if s.tables])
    assert (blocks.available, blocks.cached) == (12, 5)


def test_a_private_twin_takes_over_when_the_shared_block_is_gone() -> None:
    blocks = kv(blocks=10)
    one, twin = sequence(PROMPT[:8]), sequence(PROMPT[:8])
    assert blocks.admit(one, 0) and blocks.admit(twin, 0)
    for each in (one, twin):
        each.advance(8)
        blocks.commit(each)
    blocks.release(one)
    filler = sequence(list(range(100, 132)))
    assert blocks.admit(filler, 0)  # evicts what `one` left
    blocks.release(twin)
    blocks.release(filler)
    again = sequence(PROMPT[:9])
    assert blocks.admit(again, 0) and again.computed == 8


def test_the_shared_beginning_of_a_private_chain_outlives_its_end() -> None:
    blocks = kv(blocks=5)
    one, twin = sequence(PROMPT[:8]), sequence(PROMPT[:12])
    assert blocks.admit(one, 0) and blocks.admit(twin, 0)
    for each in (one, twin):
        each.advance(each.uncomputed)
        blocks.commit(each)
    blocks.release(one)
    blocks.release(twin)  # its third block is chained to those of `one`, which were cached before it
    filler = sequence([99] * 12)
    assert blocks.admit(filler, 0) and blocks.cached == 2  # two free blocks and an evicted one
    blocks.release(filler)
    again = sequence(PROMPT[:13])
    assert blocks.admit(again, 0) and again.computed == 8


def test_tenants_and_disabled_caches_share_nothing() -> None:
    blocks = kv(blocks=12)
    blocks.release(computed(blocks, PROMPT, salt=b"a"))
    stranger = sequence(PROMPT, salt=b"b")
    assert blocks.admit(stranger, 0) and stranger.computed == 0
    off = kv(prefix_cache=False)
    off.release(computed(off, PROMPT))
    again = sequence(PROMPT)
    assert off.cached == 0 and off.admit(again, 0) and again.computed == 0


def test_eviction_takes_the_least_recent_chain_from_its_end() -> None:
    blocks = kv(blocks=10)
    blocks.release(computed(blocks, PROMPT[:16]))
    blocks.release(computed(blocks, list(range(50, 66))))
    filler = sequence(list(range(100, 116)))
    assert blocks.admit(filler, 0)  # two free blocks and two evicted ones
    older, newer = sequence([*PROMPT[:16], 1]), sequence([*range(50, 66), 1])
    blocks.release(filler)
    assert blocks.admit(older, 0) and older.computed == 8
    assert blocks.admit(newer, 0) and newer.computed == 16


def test_a_hit_counts_the_idle_blocks_it_takes() -> None:
    blocks = kv(blocks=5)
    blocks.release(computed(blocks, PROMPT[:16]))
    again = sequence([*PROMPT[:16], 1, 2, 3, 4, 5])  # four cached and two more, of five
    assert not blocks.admit(again, 0)
    blocks.check_integrity([])
    assert blocks.admit(sequence([*PROMPT[:16], 1]), 0)


def test_random_use_keeps_the_books() -> None:
    rng = random.Random(0)
    blocks = kv(blocks=20, windows=(0, 0))
    live: list[Sequence] = []
    for serial in range(3000):
        if live and rng.random() < 0.5:
            one = live[rng.randrange(len(live))]
            if one.uncomputed and rng.random() < 0.7:
                one.advance(rng.randint(1, one.uncomputed))
                blocks.commit(one)
            else:
                live.remove(one)
                blocks.release(one)
        else:
            one = sequence([rng.choice([7, 7, 7, 8]) for _ in range(rng.randint(1, 30))], serial)
            if blocks.admit(one, rng.randint(0, 3)):
                live.append(one)
        blocks.check_integrity(live)


@pytest.mark.parametrize("prefix_cache", [True, False])
def test_blocks_that_fell_out_of_the_window_are_given_back(prefix_cache: bool) -> None:
    blocks = kv(blocks=8, prefix_cache=prefix_cache, windows=(6,))
    one = sequence(PROMPT)
    assert blocks.admit(one, 0)
    held = []
    for count in (4, 4, 1, 1, 6, 4):
        one.advance(count)
        blocks.commit(one)
        blocks.check_integrity([one])
        held.append(blocks.held(one))
    # The next query at 4, 8, 9, 10, 16, 20 sees from -1, 3, 4, 5, 11, 15 on: the block of 4 that it is in stays.
    assert held == [5, 5, 4, 4, 3, 2]
    assert blocks.available == 6
    blocks.release(one)
    blocks.check_integrity([])
    assert blocks.available == 8


def test_each_group_gives_back_by_its_own_window() -> None:
    blocks = kv(blocks=8, windows=(0, 6))
    one = computed(blocks, PROMPT)
    assert one.dropped == [0, 3] and blocks.held(one) == 4  # five and two, of two groups
    assert blocks.available == 4
    blocks.check_integrity([one])


def test_what_one_group_gives_back_all_use() -> None:
    blocks = kv(blocks=8, windows=(0, 6, 6), prefix_cache=False)
    one = computed(blocks, PROMPT)  # of 24 blocks of single groups it holds 5 + 2 + 2
    other = sequence(list(range(50, 70)))
    assert blocks.available == 5 and blocks.admit(other, 0)
    blocks.check_integrity([one, other])
    blocks.release(one)
    blocks.release(other)
    assert blocks.available == 8


def test_a_chain_is_evicted_from_its_end_in_all_groups() -> None:
    blocks = kv(blocks=6, windows=(0, 0))
    blocks.release(computed(blocks, PROMPT[:16]))
    filler = sequence(list(range(100, 116)))
    assert blocks.admit(filler, 0)  # two free blocks and two evicted ones
    blocks.release(filler)
    again = sequence([*PROMPT[:16], 1])
    assert blocks.admit(again, 0) and again.computed == 8


def test_a_hit_needs_the_last_window_only() -> None:
    blocks = kv(blocks=8, windows=(6,))
    blocks.release(computed(blocks, PROMPT))  # five blocks are cached
    filler = sequence(list(range(100, 120)))
    assert blocks.admit(filler, 0)  # five: three were free, and the first two of the prompt are evicted
    again = sequence(PROMPT)
    assert blocks.admit(again, 0)
    assert (again.computed, again.dropped, blocks.held(again)) == (16, [2], 3)
    blocks.check_integrity([filler, again])


def test_a_hit_lacking_a_block_of_the_window_is_shorter() -> None:
    blocks = kv(blocks=10, windows=(0, 6))
    first = computed(blocks, PROMPT[:8])
    other = sequence(PROMPT)
    assert blocks.admit(other, 0) and other.computed == 8
    other.advance(12)
    blocks.commit(other)
    blocks.release(other)
    blocks.release(first)
    again = sequence([*PROMPT[:8], *range(50, 60)])
    assert blocks.admit(again, 0) and again.computed == 8
    blocks.check_integrity([again])
