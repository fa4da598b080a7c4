"""Granite 3: Llama with multipliers for embeddings, scores, residuals and logits."""

from headway.model.architectures.decoder import Decoder
from headway.model.architectures.family import Layout, Sizes
from headway.model.fields import Fields
from headway.model.spec import Scales


def _scales(fields: Fields, layout: Layout, sizes: Sizes) -> Scales:
    if layout == "gguf":
        return Scales(
            attention=fields.number("attention.scale", 0) or sizes.head_dim**-0.5,
            embedding=fields.number("embedding_scale", 1.0),
            residual=fields.number("residual_scale", 1.0),
            logits=1 / _divisor(fields, "logit_scale"),
        )
    return Scales(
        attention=fields.number("attention_multiplier", 1.0),
        embedding=fields.number("embedding_multiplier", 1.0),
        residual=fields.number("residual_multiplier", 1.0),
        logits=1 / _divisor(fields, "logits_scaling"),
    )


def _divisor(fields: Fields, key: str) -> float:
    value = fields.number(key, 1.0)
    if value == 0:
        raise fields.fail(f"{key} must not be 0")
    return value


GRANITE = Decoder(names=("granite",), scales=_scales, interleaved=True)
