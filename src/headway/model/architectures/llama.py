"""Llama 1 to 3.x and those built alike: SmolLM2, Mistral and Mixtral (whose GGUF files say llama)."""

from headway.model.architectures.decoder import Decoder
from headway.model.architectures.family import Layout
from headway.model.architectures.mixture import checked, experts_of_gguf
from headway.model.fields import Fields
from headway.model.spec import Experts


def _windows(fields: Fields, layout: Layout, layers: int) -> tuple[int, ...]:
    if layout == "gguf":
        return (fields.integer("attention.sliding_window", 0),) * layers
    if fields.text("model_type") == "mixtral":
        return (fields.integer("sliding_window", 0),) * layers
    if fields.text("model_type") != "mistral":
        return (0,) * layers
    # Mistral has a default where the file is silent; null means none.
    return (fields.integer("sliding_window", 0 if fields.states("sliding_window") else 4096),) * layers


def _experts(fields: Fields, layout: Layout) -> tuple[Experts, int] | None:
    if layout == "gguf":
        return experts_of_gguf(fields, renormalise=True)
    if fields.text("model_type") != "mixtral":
        return None
    count, active = fields.integer("num_local_experts", 8), fields.integer("num_experts_per_tok", 2)
    return checked(fields, Experts(count, active, fields.integer("intermediate_size"), True, shared_gate=False)), 0


LLAMA = Decoder(
    names=("llama", "mistral", "mixtral"),
    windows=_windows,
    experts=_experts,
    interleaved=True,
    hf_names={
        "router": "block_sparse_moe.gate",
        "gate.": "block_sparse_moe.experts.{}.w1",
        "up.": "block_sparse_moe.experts.{}.w3",
        "down.": "block_sparse_moe.experts.{}.w2",
    },
)
