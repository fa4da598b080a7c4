"""The identity of a block of tokens and everything before it."""

from hashlib import blake2b

from headway.scheduling.sequence import Sequence

DIGEST_BYTES = 16


class PrefixHasher:
    """Chained hashes of full blocks, seeded with model and tenant, so that neither ever sees the other's blocks.

    128 bits of BLAKE2b: a collision would give one tenant another's context, so a cheap hash will not do.
    """

    def __init__(self, fingerprint: str, block_size: int) -> None:
        self._model = blake2b(fingerprint.encode(), digest_size=DIGEST_BYTES).digest()
        self._block_size = block_size

    def seed(self, salt: bytes) -> bytes:
        """The hash that a tenant's first block is chained to; the model's has a fixed length, so no two seeds mix."""
        return blake2b(self._model + salt, digest_size=DIGEST_BYTES).digest()

    def extend(self, sequence: Sequence, blocks: int) -> None:
        """Makes `sequence.hashes` at least `blocks` long; each block is hashed once in its sequence's life."""
        hashes = sequence.hashes
        if len(hashes) >= blocks:
            return
        size = self._block_size
        previous = hashes[-1] if hashes else self.seed(sequence.salt)
        for index in range(len(hashes), blocks):
            tokens = sequence.known[index * size : (index + 1) * size]
            assert len(tokens) == size
            previous = blake2b(previous + tokens.tobytes(), digest_size=DIGEST_BYTES).digest()
            hashes.append(previous)
