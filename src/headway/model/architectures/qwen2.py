"""Qwen2 and Qwen2.5: biases on q, k and v."""

from headway.model.architectures.decoder import Decoder
from headway.model.fields import Fields


def qwen_windows(fields: Fields, layout: str, layers: int) -> tuple[int, ...]:
    """Spans as config.json gives them: by layer_types, or the layers from max_window_layers on are windowed."""
    if layout == "gguf":
        if fields.integer("attention.sliding_window", 0):
            raise fields.fail("attention.sliding_window: the file does not say which layers it holds for")
        return (0,) * layers
    if not fields.flag("use_sliding_window", False):
        window = 0
    else:
        window = fields.integer("sliding_window", 0 if fields.states("sliding_window") else 4096)
    if "layer_types" not in fields:
        first = fields.integer("max_window_layers", 28)
        return tuple(window if layer >= first else 0 for layer in range(layers))
    types = fields.texts("layer_types")
    if len(types) != layers or not set(types) <= {"full_attention", "sliding_attention"}:
        raise fields.fail(f"layer_types must name full_attention or sliding_attention for each of {layers} layers")
    if "sliding_attention" in types and not window:
        raise fields.fail("layer_types has sliding_attention but there is no sliding_window")
    return tuple(window if type_ == "sliding_attention" else 0 for type_ in types)


def _biases(config: Fields) -> tuple[str, ...]:
    return ("q", "k", "v")  # fixed by the architecture; config.json has no word for it


QWEN2 = Decoder(names=("qwen2",), windows=qwen_windows, biases=_biases)
