"""Qwen3 (dense): q and k are normalised per head."""

from headway.model.architectures.decoder import Decoder
from headway.model.architectures.qwen2 import qwen_windows
from headway.model.fields import Fields


def _biases(config: Fields) -> tuple[str, ...]:
    return ("q", "k", "v", "o") if config.flag("attention_bias", False) else ()


QWEN3 = Decoder(names=("qwen3",), windows=qwen_windows, biases=_biases, head_norms="head")
