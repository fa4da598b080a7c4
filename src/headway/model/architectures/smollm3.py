"""SmolLM3: Llama with layers, mostly every fourth, that do not rotate."""

from headway.model.architectures.decoder import Decoder
from headway.model.architectures.family import Layout
from headway.model.architectures.windows import windows_by_type
from headway.model.fields import Fields


def _rotates(fields: Fields, layout: Layout, layers: int) -> tuple[bool, ...]:
    if layout == "hf" and "no_rope_layers" in fields:
        rotates = fields.numbers("no_rope_layers")  # 1 where a layer does rotate, despite the name
        if len(rotates) != layers or not set(rotates) <= {0, 1}:
            raise fields.fail(f"no_rope_layers must be 0 or 1 for each of {layers} layers")
        return tuple(rotate == 1 for rotate in rotates)
    # GGUF files do not say; llama.cpp too takes every fourth.
    interval = fields.integer("no_rope_layer_interval", 4) if layout == "hf" else 4
    return tuple(interval == 0 or (layer + 1) % interval != 0 for layer in range(layers))


def _windows(fields: Fields, layout: Layout, layers: int) -> tuple[int, ...]:
    if layout == "gguf" or not fields.flag("use_sliding_window", False):
        return (0,) * layers
    window = fields.integer("sliding_window", 0)
    if "layer_types" in fields:
        return windows_by_type(fields, layers, window)
    return tuple(0 if rotates else window for rotates in _rotates(fields, layout, layers))


SMOLLM3 = Decoder(names=("smollm3",), windows=_windows, rotates=_rotates, interleaved=True, tied=True)
