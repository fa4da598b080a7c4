"""Compiles grammars for one tokenizer, through llguidance. What a grammar's source is: see serving/structured."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence

import llguidance

from headway.core.errors import HeadwayError
from headway.model.tokenizer import Tokenizer

# Compiled grammars kept; the least recently used one goes.
MOST_KEPT = 64
# Copies of a compiled grammar share what its lexer has learned, which only grows: after so many it starts anew.
MOST_COPIES = 1000
# Tokens that are allowed or not together, where all of them may come: text of words, as a regex often asks for.
WORDS = ["[a-z ]{1,10}", "[a-z ]{1,20}"]
# llguidance cannot be interrupted, but counts what it does. These bound the time of a compilation (see
# docs/structured.md for measurements) and of one mask, and what a lexer may learn, at 1 to 2 kB a state.
LIMITS = llguidance.LLParserLimits(
    max_items_in_row=2000,
    initial_lexer_fuel=1_000_000,
    step_lexer_fuel=200_000,
    step_max_items=50_000,
    max_lexer_states=20_000,
    max_grammar_size=200_000,
    verbose_errors=False,
)


class GrammarError(HeadwayError):
    """A grammar cannot be compiled, or what was to match it does not."""


class Grammars:
    """Compiled grammars of one tokenizer, whose ids are padded to the model's `vocab_size`. For any thread; compiling
    releases the GIL."""

    def __init__(self, tokenizer: Tokenizer, vocab_size: int, end_ids: Sequence[int]) -> None:
        if not end_ids:
            raise GrammarError("the model has no end token, so that no output could be complete")
        self.vocab_size = vocab_size
        vocabulary = _Vocabulary(tokenizer, vocab_size, end_ids[0])
        slices = [*WORDS, *llguidance.LLTokenizer.general_slices()]
        wrapper = llguidance.TokenizerWrapper(vocabulary)
        self._tokenizer = llguidance.LLTokenizer(wrapper, eos_token=list(end_ids), slices=slices)
        vocabulary.greedy = self._tokenizer.greedy_tokenize
        self._kept: OrderedDict[str, tuple[llguidance.LLMatcher, int]] = OrderedDict()
        self._lock = threading.Lock()

    def matcher(self, source: str) -> llguidance.LLMatcher:
        """One that has consumed nothing yet. Raises GrammarError."""
        with self._lock:
            compiled, copies = self._kept.pop(source, (None, 0))
            if compiled is not None:
                if copies < MOST_COPIES:
                    self._kept[source] = compiled, copies + 1
                return compiled.deep_copy()
        compiled = self.compile(source)
        with self._lock:
            self._kept[source] = compiled, 0
            while len(self._kept) > MOST_KEPT:
                self._kept.popitem(last=False)
            return compiled.deep_copy()

    def check(self, source: str) -> None:
        """Raises GrammarError for what cannot be compiled, or does not know what may come first: some of what is too
        complex shows only then."""
        matcher = self.compile(source)
        matcher.compute_bitmask()
        if matcher.is_error():
            raise GrammarError(f"nothing can begin as it says: {reason(matcher)}")

    def compile(self, source: str) -> llguidance.LLMatcher:
        """A matcher that shares nothing with any other. Raises GrammarError."""
        compiled = llguidance.LLMatcher(self._tokenizer, source, log_level=0, limits=LIMITS)
        if compiled.is_error():
            raise GrammarError(reason(compiled))
        return compiled


def reason(matcher: llguidance.LLMatcher) -> str:
    """What went wrong with a matcher, in one line."""
    return " ".join(matcher.get_error().split("<non-verbose/>")[0].split())[:500]


class _Vocabulary:
    """The tokenizer as llguidance wants it: the very bytes that the detokenizer will give for each token."""

    def __init__(self, tokenizer: Tokenizer, vocab_size: int, end_id: int) -> None:
        self.eos_token_id = end_id
        self.bos_token_id = tokenizer.bos_id
        self.special_token_ids = [i for i in range(vocab_size) if tokenizer.is_special(i)]
        self.tokens = [self._bytes(tokenizer, index) for index in range(vocab_size)]
        self._exact = tokenizer.exact()
        self.greedy: Callable[[str], list[int]] | None = None

    @staticmethod
    def _bytes(tokenizer: Tokenizer, index: int) -> bytes:
        if tokenizer.is_special(index):  # a Lark grammar can name it
            return (tokenizer.name_of(index) or "").encode()
        return tokenizer.token_bytes(index)

    def __call__(self, text: str | bytes) -> list[int]:
        """Ids of a text that a grammar forces."""
        given = text.decode() if isinstance(text, bytes) else text
        ids = self._exact.encode(given, add_special_tokens=False).ids
        if self.greedy is not None and b"".join([self.tokens[i] for i in ids]) != given.encode():
            return self.greedy(given)  # some tokenizers drop or change a few characters; what is forced must be exact
        return ids
