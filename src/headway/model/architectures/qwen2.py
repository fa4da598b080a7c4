"""Qwen2 and Qwen2.5: biases on q, k and v."""

from headway.model.architectures.decoder import Decoder
from headway.model.architectures.family import Layout
from headway.model.architectures.windows import windows_by_type
from headway.model.fields import Fields


def qwen_windows(fields: Fields, layout: Layout, layers: int) -> tuple[int, ...]:
    """Spans as config.json gives them: by layer_types, or the layers from max_window_layers on are windowed."""
    if layout == "gguf":
        if fields.integer("attention.sliding_window", 0):
            raise fields.fail("attention.sliding_window: the file does not say which layers it holds for")
        return (0,) * layers
    if not fields.flag("use_sliding_window", False):
        window = 0
    else:
        window = fields.integer("sliding_window", 0 if fields.states("sliding_window") else 4096)
    if "layer_types" in fields:
        return windows_by_type(fields, layers, window)
    first = fields.integer("max_window_layers", 28)
    return tuple(window if layer >= first else 0 for layer in range(layers))


def qwen2_biases(config: Fields) -> tuple[str, ...]:
    """Fixed by the architecture; config.json has no word for it."""
    return ("q", "k", "v")


QWEN2 = Decoder(names=("qwen2",), windows=qwen_windows, biases=qwen2_biases)
