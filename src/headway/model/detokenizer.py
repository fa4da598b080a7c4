"""Token ids of one stream to text, as they come."""

from codecs import utf_8_decode
from collections.abc import Iterable

from headway.model.tokenizer import Tokenizer


class Detokenizer:
    """Text of a growing sequence of tokens; pushes and the flush joined are `Tokenizer.decode` of all ids at once.

    A character is never cut: its first bytes (at most three) wait for the rest. Bytes that can become no character are
    U+FFFD. A leading space of the first token is kept, for the text continues a prompt.
    """

    __slots__ = ("_held", "_known", "_token_bytes")

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._known = tokenizer.known_bytes
        self._token_bytes = tokenizer.token_bytes
        self._held = b""  # the first bytes of a character

    def push(self, ids: Iterable[int]) -> str:
        """The characters these tokens complete; often "", inside a character or for a special token."""
        known = self._known
        data = self._held
        for index in ids:
            data += known[index] if index in known else self._token_bytes(index)
        text, used = utf_8_decode(data, "replace", False)
        self._held = data[used:]
        return text

    def flush(self) -> str:
        """What is still held back, at the end: U+FFFD for an unfinished character. The next push starts anew."""
        held, self._held = self._held, b""
        return held.decode(errors="replace")
