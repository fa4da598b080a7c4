"""What a request must be for the engine to serve it at all, however long it waits.

The API checks the same earlier and answers 400; here it keeps one bad message from harming the neighbours.
"""

from dataclasses import dataclass

from headway.core.request import EngineRequest


@dataclass(frozen=True, slots=True)
class Requirements:
    context: int  # tokens in the longest sequence
    capacity: int  # tokens in the whole KV cache
    vocab_size: int

    def problem(self, request: EngineRequest) -> str | None:
        """Why this request can never be served; None: it can."""
        length, rest = divmod(len(request.prompt), 4)
        if rest:
            return "the prompt is not an array of uint32"
        if not length:
            return "the prompt has no tokens"
        if length + 1 > self.context:
            return f"the prompt of {length} tokens does not leave a token in the context of {self.context}"
        if length + 1 > self.capacity:
            return self.too_long(length + 1)
        if max(memoryview(request.prompt).cast("I")) >= self.vocab_size:
            return f"the prompt has a token id outside the vocabulary of {self.vocab_size}"
        return None

    def fits(self, length: int) -> bool:
        return length <= self.capacity

    def too_long(self, length: int) -> str:
        return f"{length} tokens do not fit the KV cache of {self.capacity}"
