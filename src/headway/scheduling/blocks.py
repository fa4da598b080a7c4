"""Paged KV: a pool of fixed-size blocks per layer group, shared by prefix, evicted least recently used first.

Blocks that fell out of a group's attention window are given back; a prefix hit needs the last window only.
"""

from array import array
from collections import Counter, OrderedDict
from collections.abc import Iterable

from headway.core.runner import RunnerInfo
from headway.scheduling.prefix import PrefixHasher
from headway.scheduling.sequence import Sequence


class BlockPool:
    """The blocks of one layer group. A block is free, referenced by sequences, or cached: unreferenced with a hash."""

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
    """All layer groups together: gives sequences their tables and takes them back."""

    def __init__(self, info: RunnerInfo, prefix_cache: bool) -> None:
        self.block_size = info.block_size
        self.total = info.blocks
        self.capacity = info.blocks * info.block_size  # tokens
        self._windows = info.windows
        self._pools = [BlockPool(info.blocks) for _ in info.windows]
        self._hasher = PrefixHasher(info.fingerprint, info.block_size) if prefix_cache else None

    @property
    def shares(self) -> bool:
        """Whether computed prefixes are shared."""
        return self._hasher is not None

    @property
    def available(self) -> int:
        """Blocks free, or cached and evictable, in the tightest group."""
        return min([pool.available for pool in self._pools])

    @property
    def cached(self) -> int:
        return max([pool.cached for pool in self._pools])

    def needed(self, tokens: int) -> int:
        return -(-tokens // self.block_size)

    def held(self, sequence: Sequence) -> int:
        """Blocks it holds, in the group in which it holds most."""
        return max([len(table) - gone for table, gone in zip(sequence.tables, sequence.dropped, strict=True)])

    def admit(self, sequence: Sequence, headroom: int) -> bool:
        """Gives tables for all known tokens, as far as possible from the prefix cache, if `headroom` blocks remain.

        All known tokens at once, though chunks come one by one: a prefill that has begun is never short of blocks.
        """
        assert not sequence.tables and sequence.computed == 0
        digests = self._match(sequence)
        count = self.needed(len(sequence.known)) - len(digests)  # new ones
        unseen = [self._unseen(window, len(digests) * self.block_size) for window in self._windows]
        found = [pool.find(digests[first:]) for pool, first in zip(self._pools, unseen, strict=True)]
        for pool, blocks in zip(self._pools, found, strict=True):
            if count + pool.idle(blocks) + headroom > pool.available:
                return False
        tables = []
        for pool, first, blocks in zip(self._pools, unseen, found, strict=True):
            for block in blocks:
                pool.share(block)
            tables.append(array("I", [0] * first + blocks + [pool.take() for _ in range(count)]))
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
            for pool, table in zip(self._pools, sequence.tables, strict=True):
                table.append(pool.take())
            sequence.room += self.block_size
        return True

    def commit(self, sequence: Sequence) -> None:
        """Makes the blocks shareable that committed steps have filled, and gives those back that fell out of windows.
        Called after the step, never before."""
        self._share(sequence)
        for group, window in enumerate(self._windows):
            unseen = self._unseen(window, sequence.computed)
            for index in range(sequence.dropped[group], unseen):
                self._pools[group].drop(sequence.tables[group][index])
            sequence.dropped[group] = max(sequence.dropped[group], unseen)

    def _share(self, sequence: Sequence) -> None:
        if self._hasher is None:
            return
        full = sequence.computed // self.block_size
        if full == sequence.registered:
            return
        self._hasher.extend(sequence, full)
        for index in range(sequence.registered, full):
            for pool, table in zip(self._pools, sequence.tables, strict=True):
                pool.register(table[index], sequence.hashes[index])
        sequence.registered = full

    def release(self, sequence: Sequence) -> None:
        """Takes all blocks back, last first, so that the LRU evicts the end of a chain before its beginning."""
        for pool, table, gone in zip(self._pools, sequence.tables, sequence.dropped, strict=bool(sequence.tables)):
            for index in range(len(table) - 1, gone - 1, -1):
                if index < sequence.registered:
                    # A private twin takes over if the shared block was evicted meanwhile, else that one ages with
                    # us: otherwise a chain could lose its beginning and keep a useless end.
                    digest = sequence.hashes[index]
                    pool.register(table[index], digest)
                    pool.drop(table[index])
                    pool.touch(digest)
                else:
                    pool.drop(table[index])
        sequence.reset()

    def check_integrity(self, sequences: Iterable[Sequence]) -> None:
        """Asserts free + referenced + cached = total in each group; `sequences` are all that hold blocks."""
        holders = list(sequences)
        for sequence in holders:
            assert all(len(table) * self.block_size == sequence.room for table in sequence.tables), sequence
        for group, pool in enumerate(self._pools):
            held = (block for s in holders if s.tables for block in s.tables[group][s.dropped[group] :])
            pool.check_integrity(Counter(held))

    def _match(self, sequence: Sequence) -> list[bytes]:
        """Digests of the longest cached prefix, short of the last token: computing that one gives the logits."""
        if self._hasher is None:
            return []
        limit = (len(sequence.known) - 1) // self.block_size
        self._hasher.extend(sequence, limit)
        longest, runs = 0, [0] * len(self._pools)  # blocks here without a gap, up to the one looked at
        for end, digest in enumerate(sequence.hashes[:limit], 1):
            for group, pool in enumerate(self._pools):
                runs[group] = runs[group] + 1 if digest in pool else 0
            needed = [end - self._unseen(window, end * self.block_size) for window in self._windows]
            if all(run >= need for run, need in zip(runs, needed, strict=True)):
                longest = end
            elif not any(self._windows):
                break
        return sequence.hashes[:longest]

    def _unseen(self, window: int, computed: int) -> int:
        """Leading blocks that no position from `computed` on sees in a group of this window."""
        return max(0, computed - window + 1) // self.block_size if window else 0
