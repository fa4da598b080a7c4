"""Llama 1 to 3.x and those built alike: SmolLM2, Mistral (whose GGUF files say llama)."""

from headway.model.architectures.decoder import Decoder
from headway.model.fields import Fields


def _windows(fields: Fields, layout: str, layers: int) -> tuple[int, ...]:
    if layout == "gguf":
        return (fields.integer("attention.sliding_window", 0),) * layers
    if fields.text("model_type") != "mistral":
        return (0,) * layers
    # Mistral has a default where the file is silent; null means none.
    return (fields.integer("sliding_window", 0 if fields.states("sliding_window") else 4096),) * layers


def _biases(config: Fields) -> tuple[str, ...]:
    attention = ("q", "k", "v", "o") if config.flag("attention_bias", False) else ()
    return attention + (("gate", "up", "down") if config.flag("mlp_bias", False) else ())


LLAMA = Decoder(names=("llama", "mistral"), windows=_windows, biases=_biases, interleaved=True)
