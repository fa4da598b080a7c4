"""A model's dimensions from either kind of checkpoint, and what is refused before any weight is looked at."""

from headway.model.architectures.family import Family, Sizes
from headway.model.architectures.names import tensor_name
from headway.model.fields import Fields
from headway.model.spec import Checkpoint

LARGEST_HEAD = 1024  # the native core's


def fields_of(checkpoint: Checkpoint) -> Fields:
    """The checkpoint's metadata: config.json, or the GGUF keys of its architecture."""
    prefix = f"{checkpoint.architecture}." if checkpoint.layout == "gguf" else ""
    return Fields(checkpoint.path, checkpoint.metadata, prefix)


def sizes_of(family: Family, checkpoint: Checkpoint) -> Sizes:
    """ModelError for anything missing, impossible or not supported."""
    fields = fields_of(checkpoint)
    read = _of_gguf if checkpoint.layout == "gguf" else _of_config
    sizes = read(family, checkpoint, fields)
    if sizes.kv_heads == 0 or sizes.heads % sizes.kv_heads:
        raise fields.fail(f"{sizes.heads} heads cannot share {sizes.kv_heads} key-value heads")
    if sizes.head_dim == 0 or sizes.head_dim % 2:
        raise fields.fail(f"a head size of {sizes.head_dim} cannot be rotated in pairs")
    if sizes.head_dim > LARGEST_HEAD:
        raise fields.fail(f"a head size of {sizes.head_dim} is not supported (up to {LARGEST_HEAD} are)")
    if sizes.layers > len(checkpoint.names()):  # before anything is made of that length
        raise fields.fail(f"{sizes.layers} layers cannot be made of {len(checkpoint.names())} tensors")
    return sizes


def _of_config(family: Family, checkpoint: Checkpoint, config: Fields) -> Sizes:
    if "quantization_config" in config:
        method = config.section("quantization_config").text("quant_method", "unknown")
        raise config.fail(f"its weights are quantised by {method}, which is not supported; F32, F16 and BF16 are")
    if "text_config" in config:
        raise config.fail("text_config: models of images and text are not supported; text-only files of them are")
    key, supported = family.activation
    activation = config.text(key, supported)
    if activation != supported:
        raise config.fail(f"{key} {activation} is not supported ({supported} is)")
    hidden, heads = _positive(config, "hidden_size"), _positive(config, "num_attention_heads")
    experts, ffn = family.experts(config, "hf") or (None, _positive(config, "intermediate_size"))
    return Sizes(
        layers=_positive(config, "num_hidden_layers"),
        hidden=hidden,
        heads=heads,
        kv_heads=config.integer("num_key_value_heads", heads),
        head_dim=config.integer("head_dim", hidden // heads),
        ffn=ffn,
        vocab=_positive(config, "vocab_size"),
        context=_positive(config, "max_position_embeddings"),
        norm_eps=config.number("rms_norm_eps"),
        tied=config.flag("tie_word_embeddings", family.tied),
        experts=experts,
    )


def _of_gguf(family: Family, checkpoint: Checkpoint, fields: Fields) -> Sizes:
    hidden, heads = _positive(fields, "embedding_length"), _positive(fields, "attention.head_count")
    head_dim = fields.integer("attention.key_length", hidden // heads)
    if fields.integer("attention.value_length", head_dim) != head_dim:
        raise fields.fail("attention.value_length must equal attention.key_length")
    experts, ffn = family.experts(fields, "gguf") or (None, _positive(fields, "feed_forward_length"))
    return Sizes(
        layers=_positive(fields, "block_count"),
        hidden=hidden,
        heads=heads,
        kv_heads=fields.integer("attention.head_count_kv", heads),
        head_dim=head_dim,
        ffn=ffn,
        # vocab_size is optional in GGUF and the embedding is not.
        vocab=checkpoint.tensor(tensor_name("gguf", "embed", -1)).shape[0],
        context=_positive(fields, "context_length"),
        norm_eps=fields.number("attention.layer_norm_rms_epsilon"),
        tied=not checkpoint.has(tensor_name("gguf", "head", -1)),
        experts=experts,
    )


def _positive(fields: Fields, key: str) -> int:
    value = fields.integer(key)
    if value == 0:
        raise fields.fail(f"{key} must not be 0")
    return value
