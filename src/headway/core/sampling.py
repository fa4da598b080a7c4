"""How one sequence's tokens are chosen."""

import msgspec


class Sampling(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """Sampling parameters of one sequence, already validated and with every default filled in.

    The order is fixed: logit_bias, penalties (repetition, then presence and frequency), grammar mask, min_tokens mask,
    temperature, top_k, top_p, min_p, draw. `temperature` 0 is greedy: the lowest id among the greatest logits. The draw
    uses a counter-based generator keyed by (seed, choice, absolute position, purpose), so a token depends on nothing
    but its own request (decision 2). Log probabilities are of the model's raw logits, before bias, penalties, masks and
    temperature.

    With a grammar an end token comes where the output is complete and nothing may follow, whatever `min_tokens` and
    `ignore_eos` say; as long as something else may follow, they hold.
    """

    max_tokens: int
    temperature: float = 1.0
    top_k: int = 0  # 0: off
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0  # over prompt and output, as in CTRL (Keskar et al. 2019)
    presence_penalty: float = 0.0  # over output, as OpenAI defines it
    frequency_penalty: float = 0.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    seed: int = 0  # 64 bits; the frontend draws a random one when the client gave none
    choice: int = 0
    min_tokens: int = 0  # no end token or stop token before this many
    ignore_eos: bool = False
    stop_token_ids: tuple[int, ...] = ()  # ends the sequence like an end token; not part of the text
    logprobs: int | None = None  # None: none; k: the chosen token's and the k most likely
    grammar: str | None = None  # llguidance's serialised grammar: what the output must be; see serving/structured
