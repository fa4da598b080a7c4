"""Qwen3 (dense): q and k are normalised per head."""

from headway.model.architectures.decoder import Decoder
from headway.model.architectures.qwen2 import qwen_windows
from headway.model.fields import Fields


def qwen3_biases(config: Fields) -> tuple[str, ...]:
    """Those of attention, where config.json says so."""
    return ("q", "k", "v", "o") if config.flag("attention_bias", False) else ()


QWEN3 = Decoder(names=("qwen3",), windows=qwen_windows, biases=qwen3_biases, head_norms="head")
