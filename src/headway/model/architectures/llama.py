"""Llama 1 to 3.x and those built alike: SmolLM2, Mistral (whose GGUF files say llama)."""

from headway.model.architectures.decoder import Decoder
from headway.model.architectures.family import Layout
from headway.model.fields import Fields


def _windows(fields: Fields, layout: Layout, layers: int) -> tuple[int, ...]:
    if layout == "gguf":
        return (fields.integer("attention.sliding_window", 0),) * layers
    if fields.text("model_type") != "mistral":
        return (0,) * layers
    # Mistral has a default where the file is silent; null means none.
    return (fields.integer("sliding_window", 0 if fields.states("sliding_window") else 4096),) * layers


LLAMA = Decoder(names=("llama", "mistral"), windows=_windows, interleaved=True)
