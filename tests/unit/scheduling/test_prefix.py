from rig import make_request

from headway.scheduling.prefix import PrefixHasher
from headway.scheduling.sequence import Sequence


def hashes(prompt: list[int], blocks: int, fingerprint: str = "model", salt: bytes = b"") -> list[bytes]:
    sequence = Sequence(make_request(1, prompt, salt=salt), 0, 100, frozenset())
    PrefixHasher(fingerprint, 4).extend(sequence, blocks)
    return sequence.hashes


def test_equal_prefixes_hash_equal_as_far_as_they_are_equal() -> None:
    one, other = hashes([1, 2, 3, 4, 5, 6, 7, 8], 2), hashes([1, 2, 3, 4, 5, 6, 7, 9], 2)
    assert one[0] == other[0] and one[1] != other[1]


def test_a_hash_covers_everything_before_it() -> None:
    assert hashes([1, 2, 3, 4, 5, 6, 7, 8], 2)[1] != hashes([9, 2, 3, 4, 5, 6, 7, 8], 2)[1]


def test_model_and_tenant_separate() -> None:
    prompt = [1, 2, 3, 4]
    seen = {hashes(prompt, 1, f, s)[0] for f in ("model", "models") for s in (b"", b"s", b"t")}
    assert len(seen) == 6 and all(len(digest) == 16 for digest in seen)


def test_extending_in_steps_is_the_same() -> None:
    sequence = Sequence(make_request(1, list(range(12))), 0, 100, frozenset())
    hasher = PrefixHasher("model", 4)
    for blocks in (1, 1, 3):
        hasher.extend(sequence, blocks)
    assert sequence.hashes == hashes(list(range(12)), 3)
