"""What a request must be for the engine to serve it at all, however long it waits.

The API checks the same earlier and answers 400; here it keeps one bad message from harming the neighbours.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

from headway.core.request import EngineRequest
from headway.core.sampling import Sampling

INT32 = 2**31  # a runner's own integers end before it
LARGEST_SHIFT = 1e6  # of a logit: far beyond any model's, far within float32
LEAST_REPETITION = 0.01  # divides logits: less would let them overflow


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
        return self._sampling_problem(request.sampling)

    def _sampling_problem(self, s: Sampling) -> str | None:
        numbers = (s.temperature, s.top_p, s.min_p, s.repetition_penalty, s.presence_penalty, s.frequency_penalty)
        if not all(map(isfinite, (*numbers, *[bias for _, bias in s.logit_bias]))):
            return "a sampling parameter is not finite"
        if s.temperature < 0 or s.repetition_penalty < LEAST_REPETITION:
            return "temperature or repetition_penalty is out of range"
        if not (0 <= s.top_p <= 1 and 0 <= s.min_p <= 1):
            return "top_p or min_p is not a share between 0 and 1"
        shifts = (s.repetition_penalty, s.presence_penalty, s.frequency_penalty, *[bias for _, bias in s.logit_bias])
        if any(abs(shift) > LARGEST_SHIFT for shift in shifts):
            return f"a penalty or bias is beyond {LARGEST_SHIFT:g}"
        if not all(0 <= count < INT32 for count in (s.top_k, s.min_tokens, s.choice, s.logprobs or 0)):
            return "a sampling parameter is negative or too large"
        return self._ids_problem(s.stop_token_ids) or self._ids_problem([token for token, _ in s.logit_bias])

    def _ids_problem(self, ids: Sequence[int]) -> str | None:
        if ids and not (min(ids) >= 0 and max(ids) < self.vocab_size):
            return f"a sampling parameter names a token outside the vocabulary of {self.vocab_size}"
        return None

    def fits(self, length: int) -> bool:
        return length <= self.capacity

    def too_long(self, length: int) -> str:
        return f"{length} tokens do not fit the KV cache of {self.capacity}"
