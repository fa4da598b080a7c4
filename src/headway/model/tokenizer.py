"""Text to token ids and back."""

import json
from array import array
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import processors

from headway.core.errors import InvalidRequest, ModelError
from headway.model.checkpoint import open_checkpoint
from headway.model.end_tokens import end_ids_of
from headway.model.gguf_tokenizer import build_tokenizer
from headway.model.spec import Checkpoint
from headway.model.template_text import special_tokens_of, tokenizer_config


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's printable stand-in for each byte: printable Latin-1 is itself, the rest follow from U+0100 on."""
    itself = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in itself]
    return {chr(byte): byte for byte in itself} | {chr(0x100 + n): byte for n, byte in enumerate(others)}


_BYTES = _byte_alphabet()


class Tokenizer:
    """A `tokenizers.Tokenizer` with the exact bytes of each token. Safe to share between threads."""

    def __init__(self, backend: tokenizers.Tokenizer, bos_id: int | None, end_ids: tuple[int, ...]) -> None:
        self._backend = backend
        self._byte_level = _is_byte_level(backend)
        self._added = backend.get_added_tokens_decoder()
        self.bos_id = bos_id
        self.end_ids = end_ids
        self.vocab_size = backend.get_vocab_size(with_added_tokens=True)
        # Bytes of the tokens met so far, by id; read on every token of every stream, so filled as they come.
        self.known_bytes: dict[int, bytes] = {}

    def encode(self, text: str, *, add_special: bool) -> "array[int]":
        """Ids as array('I'). Names of special tokens in the text become those tokens, as with transformers and vLLM.

        `add_special`: with the tokens a model wants around a text (BOS); not for what a chat template wrote.
        """
        return self.encode_batch([text], add_special=add_special)[0]

    def encode_batch(self, texts: Sequence[str], *, add_special: bool) -> "list[array[int]]":
        """`encode` of each text, in parallel and without the GIL."""
        try:
            encodings = self._backend.encode_batch_fast(list(texts), add_special_tokens=add_special)
        except TypeError as error:
            raise InvalidRequest("text has a surrogate without its pair, which is not Unicode text") from error
        return [array("I", encoding.ids) for encoding in encodings]

    def token_bytes(self, index: int) -> bytes:
        """The exact bytes a token stands for, maybe part of a character; b"" for special tokens and unused ids."""
        found = self.known_bytes.get(index)
        if found is None:
            found = self.known_bytes[index] = self._bytes_of(index)
        return found

    def decode(self, ids: Iterable[int]) -> str:
        """The whole text of `ids`; bytes that are not UTF-8 become U+FFFD."""
        return b"".join(map(self.token_bytes, ids)).decode("utf-8", "replace")

    def id_of(self, token: str) -> int | None:
        """The id of a token by its name in the vocabulary, such as "<|im_end|>"."""
        return self._backend.token_to_id(token)

    def special_id(self, token: str) -> int | None:
        """The id of a special token, whose text is not shown; None for any other."""
        index = self.id_of(token)
        return index if index is not None and self.is_special(index) else None

    def showing(self, tokens: Mapping[str, int]) -> "Tokenizer":
        """This tokenizer, but with the text of these special tokens (name: id) shown."""
        other = Tokenizer(self._backend, self.bos_id, self.end_ids)
        other.known_bytes |= {index: token.encode() for token, index in tokens.items()}
        return other

    def is_special(self, index: int) -> bool:
        """Whether the token has a name but no text."""
        added = self._added.get(index)
        return added is not None and added.special

    def name_of(self, index: int) -> str | None:
        """A token as the vocabulary spells it; None for an unused id."""
        return self._backend.id_to_token(index)

    def exact(self) -> tokenizers.Tokenizer:
        """A tokenizer whose tokens spell exactly what it is given: no space before it, no special token in it."""
        parts = {name: _described(getattr(self._backend, name)) for name in ("normalizer", "pre_tokenizer")}
        described = {name: _without_prefix(part) for name, part in parts.items()}
        empty = {"added_tokens": [], "model": {"type": "BPE", "vocab": {}, "merges": []}}
        changed = tokenizers.Tokenizer.from_str(json.dumps(described | empty))
        exact = tokenizers.Tokenizer(self._backend.model)  # shared, for a vocabulary takes a while and some 40 MB
        exact.normalizer, exact.pre_tokenizer = changed.normalizer, changed.pre_tokenizer
        exact.decoder, exact.post_processor = self._backend.decoder, self._backend.post_processor
        for _, token in sorted(self._added.items()):
            exact.add_tokens([token])
        exact.encode_special_tokens = True
        return exact

    def _bytes_of(self, index: int) -> bytes:
        if (added := self._added.get(index)) is not None:
            return b"" if added.special else added.content.encode()
        token = self._backend.id_to_token(index)
        if token is None:
            return b""
        if self._byte_level:
            try:
                return bytes(map(_BYTES.__getitem__, token))
            except KeyError:  # outside the alphabet: put into the vocabulary as plain text
                return token.encode()
        if len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
            return bytes.fromhex(token[3:5])
        return token.replace("▁", " ").encode()


def load_tokenizer(source: Checkpoint | Path) -> Tokenizer:
    """The tokenizer of a checkpoint, or of the GGUF file or folder at a path. ModelError if there is none."""
    if isinstance(source, Path):
        checkpoint = open_checkpoint(source)
        try:
            return load_tokenizer(checkpoint)
        finally:
            checkpoint.close()
    backend = build_tokenizer(source) if source.layout == "gguf" else _backend_of_folder(source)
    bos = special_tokens_of(source).get("bos_token")
    return Tokenizer(backend, None if bos is None else backend.token_to_id(bos), end_ids_of(source))


def _backend_of_folder(checkpoint: Checkpoint) -> tokenizers.Tokenizer:
    path = checkpoint.path / "tokenizer.json"
    if not path.is_file():
        other = "; tokenizer.model alone is not enough" if (checkpoint.path / "tokenizer.model").is_file() else ""
        raise ModelError(f"model folder {checkpoint.path} has no tokenizer.json{other}")
    try:
        backend = tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises bare Exceptions
        raise ModelError(f"{path} cannot be read ({error})") from error
    # A file may carry the padding or truncation of its training; prompts are neither cut nor padded.
    backend.no_padding()
    backend.no_truncation()
    config = tokenizer_config(checkpoint.path)
    if "add_bos_token" in config or "add_eos_token" in config:
        try:
            _surround(backend, config, special_tokens_of(checkpoint))
        except (ValueError, TypeError) as error:  # a name that is no text, a pair of names that are no template
            raise ModelError(f"{path} does not have the tokens that tokenizer_config.json names ({error})") from error
    return backend


def _surround(backend: tokenizers.Tokenizer, config: dict[str, Any], special: dict[str, str]) -> None:
    """As transformers does: flags in tokenizer_config.json overrule what tokenizer.json puts around a text."""
    ids = {token: backend.token_to_id(token) for token in special.values()}
    bos, eos = (
        [special[f"{key}_token"]]
        if config.get(f"add_{key}_token") and ids.get(special.get(f"{key}_token", "")) is not None
        else []
        for key in ("bos", "eos")
    )
    backend.post_processor = processors.TemplateProcessing(
        single=[*bos, "$A", *eos], special_tokens=[(token, ids[token]) for token in {*bos, *eos}]
    )


def _described(part: Any) -> dict[str, Any] | None:
    """A part of a tokenizer as tokenizer.json has it."""
    return None if part is None else json.loads(part.__getstate__())


def _without_prefix(part: dict[str, Any] | None) -> dict[str, Any] | None:
    """A normalizer or pre-tokenizer that puts no space before a text."""
    if part is None or part["type"] == "Prepend":
        return None
    if part["type"] == "Metaspace":
        return {**part, "prepend_scheme": "never"}
    if part["type"] == "ByteLevel":
        return {**part, "add_prefix_space": False}
    if part["type"] == "Sequence":
        key = "normalizers" if "normalizers" in part else "pretokenizers"
        kept = [inner for inner in map(_without_prefix, part[key]) if inner is not None]
        return {**part, key: kept} if kept else None
    return part


def _is_byte_level(backend: tokenizers.Tokenizer) -> bool:
    """Whether tokens are spelled in GPT-2's byte alphabet, else SentencePiece's with ▁ and <0xAB>."""
    decoder = _described(backend.decoder) or {}
    kinds = {part.get("type") for part in [decoder, *decoder.get("decoders", [])]}
    if "ByteLevel" in kinds:
        return True
    if kinds & {"ByteFallback", "Metaspace", "Replace"}:
        return False
    raise ModelError(f"the tokenizer's decoder ({', '.join(map(str, kinds))}) is neither byte-level nor SentencePiece")
