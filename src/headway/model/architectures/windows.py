"""Which layers attend to a window only, as config.json's layer_types say it."""

from headway.model.fields import Fields

_TYPES = ("full_attention", "sliding_attention")


def windows_by_type(config: Fields, layers: int, window: int) -> tuple[int, ...]:
    """`window` for each layer of the type sliding_attention, 0 for the others. ModelError for any other type."""
    types = config.texts("layer_types")
    if len(types) != layers or not set(types) <= set(_TYPES):
        raise config.fail(f"layer_types must name full_attention or sliding_attention for each of {layers} layers")
    if "sliding_attention" in types and not window:
        raise config.fail("layer_types has sliding_attention but there is no sliding_window")
    return tuple(window if type_ == "sliding_attention" else 0 for type_ in types)
