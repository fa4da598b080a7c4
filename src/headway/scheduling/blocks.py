"""Paged KV: one pool of blocks of equal size, each of which holds the layers of one group for some tokens; shared by
prefix, evicted least recently used first.

Blocks that fell out of a group's attention window are given back, for any group to use; a prefix hit needs the last
window only. To the rest of the scheduler "a block" is one in each group: only this file counts those of single groups.
"""

from array import array
from collections import Counter, OrderedDict
from collections.abc import Iterable
from itertools import chain

from headway.core.runner import RunnerInfo
from headway.scheduling.prefix import PrefixHasher
from headway.scheduling.sequence import Sequence


class BlockPool:
    """All blocks. A block is free, referenced by sequences, or cached: unreferenced with a hash."""

    def __init__(self, total: int) -> None:
        self.total = total
        self._free = list(range(total - 1, -1, -1))
        self._references = [0] * total
        self._hashes: list[bytes | None] = [None] * total
        self._by_hash: dict[bytes, int] = {}
        self._cached: OrderedDict[int, None] = OrderedDict()  # least recently used first

    @property
    def available(self) -> int:
        return len(self._free) + len(self._cached)

    @property
    def cached(self) -> int:
        return len(self._cached)

    def __contains__(self, digest: bytes) -> bool:
        return digest in self._by_hash

    def find(self, digests: list[bytes]) -> list[int]:
        return [self._by_hash[digest] for digest in digests]

    def idle(self, blocks: list[int]) -> int:
        """How many of these count as available now but no longer once they are shared."""
        return sum(self._references[block] == 0 for block in blocks)

    def take(self) -> int:
        """A private block; evicts the least recently used cached one if none is free."""
        if self._free:
            block = self._free.pop()
        else:
            block, _ = self._cached.popitem(last=False)
            self._forget(block)
        self._references[block] = 1
        return block

    def share(self, block: int) -> None:
        if self._references[block] == 0:
            del self._cached[block]
        self._references[block] += 1

    def drop(self, block: int) -> None:
        self._references[block] -= 1
        assert self._references[block] >= 0, block
        if self._references[block] == 0:
            if self._hashes[block] is None:
                self._free.append(block)
            else:
                self._cached[block] = None

    def register(self, block: int, digest: bytes) -> None:
        """Makes a computed block findable. The first block of a digest wins; a later twin just stays private."""
        if digest not in self._by_hash and self._hashes[block] is None:
            self._by_hash[digest] = block
            self._hashes[block] = digest

    def touch(self, digest: bytes) -> None:
        """Marks the digest's block, if it is cached, as the most recently used."""
        block = self._by_hash.get(digest)
        if block is not None and block in self._cached:
            self._cached.move_to_end(block)

    def _forget(self, block: int) -> None:
        digest = self._hashes[block]
        if digest is not None:
            del self._by_hash[digest]
            self._hashes[block] = None

    def check_integrity(self, referenced: "Counter[int]") -> None:
        """`referenced` counts, per block, the sequences that hold it."""
        for block, count in enumerate(self._references):
            assert count == referenced[block], (block, count, referenced[block])
        assert len(self._free) + len(referenced) + len(self._cached) == self.total
        assert len(set(self._free)) == len(self._free)
        assert not set(self._free) & (self._cached.keys() | referenced.keys())
        assert not self._cached.keys() & referenced.keys()
        assert all(self._hashes[block] is None for block in self._free)
        assert all(self._hashes[block] is not None for block in self._cached)
        assert all(self._hashes[block] == digest for digest, block in self._by_hash.items())
        assert len(self._by_hash) == sum(digest is not None for digest in self._hashes)


class KvBlocks:
    """Gives sequences their tables, one for each layer group, and takes them back."""

    def __init__(self, info: RunnerInfo, prefix_cache: bool) -> None:
        self.block_size = info.block_size
        self.windows = info.windows
        self._groups = len(info.windows)
        self.total = info.blocks // self._groups
        self.capacity = self.total * info.block_size  # tokens, if no window hid any
        self._pool = BlockPool(info.blocks)
        self._names = [bytes([group]) if group else b"" for group in range(self._groups)]  # end a digest
        self._hasher = PrefixHasher(info.fingerprint, info.block_size) if prefix_cache else None

    @property
    def shares(self) -> bool:
        """Whether computed prefixes are shared."""
        return self._hasher is not None

    @property
    def available(self) -> int:
        """Blocks free, or cached and evictable."""
        return self._pool.available // self._groups

    @property
    def cached(self) -> int:
        return -(-self._pool.cached // self._groups)

    def needed(self, tokens: int) -> int:
        return -(-tokens // self.block_size)

    def held(self, sequence: Sequence) -> int:
        """Blocks it holds."""
        return -(-(sum(map(len, sequence.tables)) - sum(sequence.dropped)) // self._groups)

    def admit(self, sequence: Sequence, headroom: int) -> bool:
        """Gives tables for all known tokens, as far as possible from the prefix cache, if `headroom` blocks remain.

        All known tokens at once, though chunks come one by one: a prefill that has begun is never short of blocks.
        """
        assert not sequence.tables and sequence.computed == 0
        digests = self._match(sequence)
        count = self.needed(len(sequence.known)) - len(digests)  # new ones
        unseen = [self._unseen(window, len(digests) * self.block_size) for window in self.windows]
        pool, groups = self._pool, zip(self._names, unseen, strict=True)
        found = [pool.find([digest + name for digest in digests[first:]]) for name, first in groups]
        idle = sum([pool.idle(blocks) for blocks in found])
        if (count + headroom) * self._groups + idle > pool.available:
            return False
        for block in chain.from_iterable(found):  # all of them before any is taken, lest that evicts them
            pool.share(block)
        tables = [
            array("I", [0] * first + blocks + [pool.take() for _ in range(count)])
            for first, blocks in zip(unseen, found, strict=True)
        ]
        sequence.tables = tuple(tables)
        sequence.dropped = unseen
        sequence.room = len(tables[0]) * self.block_size
        sequence.registered = len(digests)
        sequence.computed = len(digests) * self.block_size
        return True

    def grow(self, sequence: Sequence, tokens: int) -> bool:
        """Extends the tables to cover `tokens`; changes nothing and says False if the blocks are not there."""
        missing = self.needed(tokens) - len(sequence.tables[0])
        if missing > self.available:
            return False
        for _ in range(missing):
            for table in sequence.tables:
                table.append(self._pool.take())
            sequence.room += self.block_size
        return True

    def commit(self, sequence: Sequence) -> None:
        """Makes the blocks shareable that committed steps have filled, and gives those back that fell out of windows.
        Called after the step, never before."""
        self._share(sequence)
        for group, window in enumerate(self.windows):
            unseen = self._unseen(window, sequence.computed)
            for index in range(sequence.dropped[group], unseen):
                self._pool.drop(sequence.tables[group][index])
            sequence.dropped[group] = max(sequence.dropped[group], unseen)

    def _share(self, sequence: Sequence) -> None:
        if self._hasher is None:
            return
        full = sequence.computed // self.block_size
        if full == sequence.registered:
            return
        self._hasher.extend(sequence, full)
        for index in range(sequence.registered, full):
            for name, table in zip(self._names, sequence.tables, strict=True):
                self._pool.register(table[index], sequence.hashes[index] + name)
        sequence.registered = full

    def release(self, sequence: Sequence) -> None:
        """Takes all blocks back, last first, so that the LRU evicts the end of a chain before its beginning."""
        pool = self._pool
        groups = list(zip(self._names, sequence.tables, sequence.dropped, strict=True)) if sequence.tables else []
        for index in range(sequence.room // self.block_size - 1, -1, -1):  # of all groups, for a hit needs all
            for name, table, gone in groups:
                if index < gone:
                    continue
                if index < sequence.registered:
                    # A private twin takes over if the shared block was evicted meanwhile, else that one ages with
                    # us: otherwise a chain could lose its beginning and keep a useless end.
                    digest = sequence.hashes[index] + name
                    pool.register(table[index], digest)
                    pool.drop(table[index])
                    pool.touch(digest)
                else:
                    pool.drop(table[index])
        sequence.reset()

    def check_integrity(self, sequences: Iterable[Sequence]) -> None:
        """Asserts free + referenced + cached = total; `sequences` are all that hold blocks."""
        holders = list(sequences)
        for sequence in holders:
            assert all(len(table) * self.block_size == sequence.room for table in sequence.tables), sequence
        tables = [(t, gone) for s in holders if s.tables for t, gone in zip(s.tables, s.dropped, strict=True)]
        self._pool.check_integrity(Counter(chain.from_iterable(table[gone:] for table, gone in tables)))

    def _match(self, sequence: Sequence) -> list[bytes]:
        """Digests of the longest cached prefix, short of the last token: computing that one gives the logits."""
        if self._hasher is None:
            return []
        limit = (len(sequence.known) - 1) // self.block_size
        self._hasher.extend(sequence, limit)
        longest, runs = 0, [0] * self._groups  # blocks here without a gap, up to the one looked at
        for end, digest in enumerate(sequence.hashes[:limit], 1):
            for group, name in enumerate(self._names):
                runs[group] = runs[group] + 1 if digest + name in self._pool else 0
            needed = [end - self._unseen(window, end * self.block_size) for window in self.windows]
            if all(run >= need for run, need in zip(runs, needed, strict=True)):
                longest = end
            elif not any(self.windows):
                break
        return sequence.hashes[:longest]

    def _unseen(self, window: int, computed: int) -> int:
        """Leading blocks that no position from `computed` on sees in a group of this window."""
        return max(0, computed - window + 1) // self.block_size if window else 0
