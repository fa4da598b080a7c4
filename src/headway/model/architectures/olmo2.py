"""OLMo 2: attention and feed-forward normalise what they add, not what they read; q and k over their whole width."""

from headway.model.architectures.decoder import Decoder
from headway.model.architectures.family import Layout
from headway.model.architectures.names import HF_POST_NORMS
from headway.model.fields import Fields


def _windows(fields: Fields, layout: Layout, layers: int) -> tuple[int, ...]:
    if layout == "gguf" and fields.integer("attention.sliding_window", 0):
        raise fields.fail("attention.sliding_window: OLMo 3 is not supported (OLMo 2 is)")
    return (0,) * layers


OLMO2 = Decoder(
    names=("olmo2",), windows=_windows, head_norms="width", pre_norms=False, post_norms=True, hf_names=HF_POST_NORMS
)
