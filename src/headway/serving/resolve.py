"""The last checks before the engine, which need the prompt's ids: what is left open gets its value."""

import secrets
from array import array

import msgspec

from headway.core.errors import ContextOverflow, InvalidRequest
from headway.core.sampling import Sampling
from headway.serving.request import ChatPrompt, Request


def resolve_sampling(request: Request, prompt: "array[int]", context: int, vocab_size: int) -> Sampling:
    """The sampling with max_tokens, seed and grammar filled in.

    Raises ContextOverflow, and InvalidRequest for an empty prompt or ids that the model does not have.
    """
    param = "messages" if isinstance(request.prompt, ChatPrompt) else "prompt"
    length = len(prompt)
    if length == 0:
        raise InvalidRequest("the prompt is empty: there is no token to continue from", param=param)
    if length >= context:
        raise ContextOverflow(
            f"the prompt has {length} tokens; this model's context is {context} tokens, prompt and output together",
            param=param,
        )
    asked = request.max_tokens
    if asked is not None and length + asked > context:
        raise ContextOverflow(
            f"the prompt has {length} tokens and max_tokens is {asked}, together {length + asked};"
            f" this model's context is {context} tokens",
            param="max_tokens",
        )
    sampling = request.sampling
    check_ids([i for i, _ in sampling.logit_bias], vocab_size, "logit_bias")
    check_ids(list(sampling.stop_token_ids), vocab_size, "stop_token_ids")
    max_tokens = asked if asked is not None else context - length
    return msgspec.structs.replace(
        sampling,
        max_tokens=max_tokens,
        min_tokens=min(sampling.min_tokens, max_tokens),
        seed=request.seed if request.seed is not None else secrets.randbits(64),
        grammar=None if request.form is None else request.form.source,
    )


def check_ids(ids: list[int], vocab_size: int, param: str) -> None:
    """Raises InvalidRequest naming the first id that the model does not have."""
    if not ids or (min(ids) >= 0 and max(ids) < vocab_size):
        return
    for token in ids:
        if not 0 <= token < vocab_size:
            raise InvalidRequest(
                f"{param}: token id {token} is out of the vocabulary (0 to {vocab_size - 1})", param=param
            )
