"""Which layers attend to a window only."""

from headway.model.fields import Fields

_TYPES = ("full_attention", "sliding_attention")


def windows_by_type(config: Fields, layers: int, window: int) -> tuple[int, ...]:
    """As config.json's layer_types say it: `window` for each layer of sliding_attention, 0 for those of full_attention.

    ModelError for any other type.
    """
    types = config.texts("layer_types")
    if len(types) != layers or not set(types) <= set(_TYPES):
        raise config.fail(f"layer_types must name full_attention or sliding_attention for each of {layers} layers")
    if "sliding_attention" in types and not window:
        raise config.fail("layer_types has sliding_attention but there is no sliding_window")
    return tuple(window if type_ == "sliding_attention" else 0 for type_ in types)


def by_turns(layers: int, period: int, window: int) -> tuple[int, ...]:
    """`window` for each layer but every `period`-th, which attends to all."""
    return tuple(window if (layer + 1) % period else 0 for layer in range(layers))
