"""Real vocabularies, as packages carry them, written to GGUF as llama.cpp's converter does, against the libraries they
were made for. Skipped where the packages are not installed (`make test-all` installs them)."""

import base64
import gzip
import importlib.metadata
import json
import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import pytest
from oracle import FIXTURES

from headway.model.detokenizer import Detokenizer
from headway.model.tokenizer import Tokenizer, load_tokenizer

sys.path.insert(0, str(FIXTURES.parent / "make"))
from texts import TEXTS

CODE = "def f(xs: list[int]) -> int:\n\treturn sum(\n" + " " * 16 + "x ** 2 for x in xs  # ²\n" + " " * 8 + ")\r\n\r\n"
LONG = [
    *(" " * 100, "a" + " " * 1000 + "b", "\n" * 50, " \n" * 30 + "\t" * 40, CODE * 5),
    *("🙂👩\u200d👩\u200d👧\u200d👦" * 20, "汉字かな교" * 40, "=" * 300),
]
# Names of special tokens are plain text to the originals.
PLAIN = [text for text in [*TEXTS, *LONG] if not any(name in text for name in ("<|", "<s>", "</s>", "<unk>", "[INST]"))]
_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
_O200K = "|".join(
    [
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    ]
)


@dataclass(frozen=True)
class Original:
    """What a vocabulary was made for."""

    encode: Callable[[str], list[int]]
    decode: Callable[[list[int]], str]  # U+FFFD for bytes that are not UTF-8
    count: int


def packaged(package: str, file: str) -> Path:
    """A file of an installed package, which need not be imported for it."""
    try:
        files = importlib.metadata.files(package) or []
    except importlib.metadata.PackageNotFoundError:
        pytest.skip(f"{package} is not installed")
    return Path(str(next(f for f in files if str(f) == file).locate()))


def ranks_of(data: bytes) -> dict[bytes, int]:
    """Tokens of a tiktoken file by their bytes."""
    pairs = (line.split() for line in data.splitlines() if line)
    return {base64.b64decode(token): int(rank) for token, rank in pairs}


def tiktoken_ranks(package: str, file: str) -> tuple[dict[bytes, int], int]:
    data = packaged(package, file).read_bytes()
    return ranks_of(gzip.decompress(data) if file.endswith(".gz") else data), 0


def tekken_ranks(package: str, file: str) -> tuple[dict[bytes, int], int]:
    """Of a file with more tokens than the models have, whose ids begin after 1,000 special ones."""
    content = json.loads(packaged(package, file).read_text(encoding="utf-8"))
    special = content["config"]["default_num_special_tokens"]
    count = content["config"]["default_vocab_size"] - special
    return {base64.b64decode(t["token_bytes"]): t["rank"] for t in content["vocab"][:count]}, special


def write(path: Path, metadata: dict[str, Any]) -> Path:
    """A GGUF file with a tokenizer and nothing else."""
    writer = gguf.GGUFWriter(path, "llama")
    for key, value in metadata.items():
        add = {str: writer.add_string, bool: writer.add_bool, int: writer.add_uint32, list: writer.add_array}
        add[type(value)](f"tokenizer.ggml.{key}", value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def byte_level(path: Path, pre: str, ranks: dict[bytes, int], special: int) -> Path:
    """Merges as transformers finds them for tiktoken's vocabularies: all ways to make a token of two, in its order."""
    letters = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = {byte: chr(0x100 + n) for n, byte in enumerate(b for b in range(256) if b not in letters)}
    alphabet = [others.get(byte, chr(byte)) for byte in range(256)]

    def spelled(token: bytes) -> str:
        return "".join([alphabet[byte] for byte in token])

    ordered = sorted(ranks, key=ranks.__getitem__)
    assert [ranks[token] for token in ordered] == list(range(len(ordered)))
    merges = []
    for token in ordered:
        cuts = [(token[:i], token[i:]) for i in range(1, len(token)) if token[:i] in ranks and token[i:] in ranks]
        cuts.sort(key=lambda cut: (ranks[cut[0]], ranks[cut[1]]))
        merges += [f"{spelled(left)} {spelled(right)}" for left, right in cuts]
    names = [f"<special {i}>" for i in range(special)]
    types = [3] * special + [1] * len(ordered)
    tokens = names + [spelled(token) for token in ordered]
    content = {"model": "gpt2", "pre": pre, "tokens": tokens, "merges": merges, "token_type": types}
    return write(path, {**content, "add_bos_token": False})


BYTE_LEVEL = {
    "llama3": ("llama-bpe", tiktoken_ranks, "llama-models", "llama_models/llama3/tokenizer.model", _LLAMA3),
    "qwen2": ("qwen2", tiktoken_ranks, "dashscope", "dashscope/resources/qwen.tiktoken", _LLAMA3.replace("{1,3}", "")),
    "phi4": ("dbrx", tiktoken_ranks, "bpe-openai", "bpe_openai/data/cl100k_base.tiktoken.gz", _LLAMA3),
    "phi4_mini": ("gpt-4o", tiktoken_ranks, "bpe-openai", "bpe_openai/data/o200k_base.tiktoken.gz", _O200K),
    "mistral_nemo": ("tekken", tekken_ranks, "mistral-common", "mistral_common/data/tekken_240911.json", None),
}


@pytest.fixture(scope="module", params=BYTE_LEVEL)
def byte_vocabulary(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Tokenizer, Original]:
    pre, read, package, file, pattern = BYTE_LEVEL[request.param]
    tiktoken = pytest.importorskip("tiktoken")
    ranks, special = read(package, file)
    pattern = pattern or json.loads(packaged(package, file).read_text(encoding="utf-8"))["config"]["pattern"]
    theirs = tiktoken.Encoding(request.param, pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    original = Original(
        lambda text: [special + index for index in theirs.encode_ordinary(text)],
        lambda ids: theirs.decode([index - special for index in ids], errors="replace"),
        special + len(ranks),
    )
    path = byte_level(tmp_path_factory.mktemp("gguf") / "model.gguf", pre, ranks, special)
    return load_tokenizer(path), original


def check(ours: Tokenizer, original: Original, ordinary: Sequence[int]) -> None:
    """Ids, round trip, and text of whatever ids, most of which give no valid UTF-8."""
    assert ours.vocab_size == original.count
    for text in PLAIN:
        ids = ours.encode(text, add_special=False).tolist()
        assert ids == original.encode(text), text[:80]
        assert ours.decode(ids) == original.decode(ids)
    rng = random.Random(0)
    for _ in range(300):
        ids = rng.choices(ordinary, k=rng.randint(1, 12))
        expected = original.decode(ids)
        assert ours.decode(ids) == expected
        stream = Detokenizer(ours)
        assert "".join([stream.push([index]) for index in ids]) + stream.flush() == expected


def test_byte_level(byte_vocabulary: tuple[Tokenizer, Original]) -> None:
    ours, original = byte_vocabulary
    first = original.encode("\0")[0]
    check(ours, original, range(first - first % 1000, original.count))
    for text in PLAIN:
        assert ours.decode(ours.encode(text, add_special=False)) == text


@pytest.mark.parametrize("version", ["tokenizer.model.v1", "mistral_instruct_tokenizer_240323.model.v3"])
def test_sentencepiece(version: str, tmp_path: Path) -> None:
    """Mistral's, whose algorithm and settings are Llama 2's."""
    sentencepiece = pytest.importorskip("sentencepiece")
    model = sentencepiece.SentencePieceProcessor(
        model_file=str(packaged("mistral-common", f"mistral_common/data/{version}"))
    )
    count = model.vocab_size()
    kinds = [(model.is_unknown, 2), (model.is_control, 3), (model.is_byte, 6)]
    types = [next((kind for asked, kind in kinds if asked(index)), 1) for index in range(count)]
    tokens = [model.id_to_piece(index) for index in range(count)]
    scores = [model.get_score(index) for index in range(count)]
    content = {"model": "llama", "tokens": tokens, "scores": scores, "token_type": types, "add_bos_token": False}
    ours = load_tokenizer(write(tmp_path / "model.gguf", {**content, "unknown_token_id": 0}))

    def decode(ids: list[int]) -> str:
        """The bytes of the pieces: the library's own text lacks the first space."""
        spelled = (
            bytes.fromhex(tokens[i][3:5]) if types[i] == 6 else tokens[i].replace("▁", " ").encode() for i in ids
        )
        return b"".join(spelled).decode(errors="replace")

    ordinary = [index for index in range(count) if types[index] in (1, 6)]
    check(ours, Original(model.encode, decode, count), ordinary)
    for text in filter(None, PLAIN):
        assert ours.decode(ours.encode(text, add_special=False)) == " " + text
