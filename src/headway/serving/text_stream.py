"""From emitted tokens to text: detokenise, find stop strings, hold back what may begin one.

Plain and synchronous, so that the offline `LLM` shares it.
"""

from array import array
from collections import deque
from collections.abc import Sequence

from headway.core.events import Finish, TokenLogprobs
from headway.model.detokenizer import Detokenizer
from headway.serving.stop_strings import StopStrings
from headway.serving.text_events import Delta


class TextStream:
    """The text of one sequence.

    A token travels with the first character it brings, so ids and logprobs of a held-back or cut stop string are held
    back and cut with it. After `stopped`, further tokens are wasted and must not be pushed.
    """

    def __init__(self, detokenizer: Detokenizer, stops: Sequence[str] = (), logprobs: bool = False) -> None:
        self._detokenizer = detokenizer
        self._stops = StopStrings(stops) if stops else None
        self._want_logprobs = logprobs
        self._plain = self._stops is None and not logprobs
        self._ids: list[int] = []  # without text so far; for a plain stream only
        self._text = ""  # not yet released
        self._read = 0  # characters that came out of the detokenizer
        self._released = 0
        self._entries: deque[tuple[int, int, TokenLogprobs | None]] = deque()  # (where its text begins, id, logprobs)
        self._cut = 0  # characters of `_text` from the stop string on
        self.stopped = False  # a stop string was found
        self.tokens = 0  # emitted tokens that count
        self.called = False  # there were tool calls, and all are whole
        self.reasoning_tokens = 0

    def begin(self, prompt: "array[int]") -> None:
        """Takes the ids of the prompt, before the first push. Plain text does not depend on it."""

    def push(
        self,
        tokens: Sequence[int],
        logprobs: Sequence[TokenLogprobs] | None = None,
        finish: Finish | None = None,
    ) -> Delta | None:
        """Takes the tokens of one step; None while there is nothing to show. With `finish`, all that is held comes."""
        if self._plain:
            return self._push_plain(list(tokens), finish)
        textless = len(tokens) - 1 if finish is Finish.STOP else -1  # an end token counts, but is no text
        for i, token in enumerate(tokens):
            self.tokens += 1
            if i == textless:
                break
            self._entries.append((self._read, token, logprobs[i] if logprobs else None))
            if self._feed(self._detokenizer.push((token,))):
                break
        if finish is not None and not self.stopped:
            self._feed(self._detokenizer.flush())
        return self._release(final=finish is not None)

    def _push_plain(self, tokens: list[int], finish: Finish | None) -> Delta | None:
        """The same where nothing can be held back or cut: the common case, and the hot path."""
        self.tokens += len(tokens)
        if finish is Finish.STOP:
            del tokens[-1:]
        text = self._detokenizer.push(tokens)
        if finish is not None:
            text += self._detokenizer.flush()
        if self._ids:
            tokens = self._ids + tokens
        self._ids = [] if text else tokens
        return Delta(text, tokens) if text else None

    def _feed(self, piece: str) -> bool:
        """Appends a piece of text; True if it completes a stop string."""
        if not piece:
            return False
        self._text += piece
        self._read += len(piece)
        if self._stops is not None and (match := self._stops.push(piece)) is not None:
            self.stopped = True
            self._cut = len(piece) - match.after + match.length
        return self.stopped

    def _release(self, final: bool) -> Delta | None:
        held = 0 if final or self._stops is None else self._stops.held
        if self.stopped:
            held = self._cut
        visible = self._text[: len(self._text) - held] if held else self._text
        self._text = self._text[len(visible) :]
        self._released += len(visible)
        ids: list[int] = []
        probs: list[TokenLogprobs] = []
        rest = final and not self.stopped  # tokens without text, at the very end
        while self._entries and (rest or self._entries[0][0] < self._released):
            _, token, entry = self._entries.popleft()
            ids.append(token)
            if entry is not None:
                probs.append(entry)
        if not visible and not probs:
            return None
        return Delta(visible, ids, probs if self._want_logprobs else None)
