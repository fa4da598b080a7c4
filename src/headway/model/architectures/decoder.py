"""The one decoder that ModelSpec describes, read from either kind of checkpoint; families differ in a few facts."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from headway.core.errors import ModelError
from headway.model.architectures.names import changes_nothing, tensor_name
from headway.model.architectures.rope import rope_of
from headway.model.fields import Fields
from headway.model.spec import Checkpoint, ModelSpec, RawTensor, Weight

_VECTORS = ("F32", "F16", "BF16")  # types of norms and biases
_LINEARS = ("q", "k", "v", "o", "gate", "up", "down")

Shape = tuple[int, int]  # rows, columns


@dataclass(frozen=True, slots=True)
class Decoder:
    """A model family, an Architecture.

    `names`: its architecture in GGUF files and model_types in config.json. `windows(fields, layout, layers)`: each
    layer's attention span. `biases(fields)`: linears that config.json gives a bias. `head_norms`: q and k are
    normalised per head. `interleaved`: GGUF files hold the rows of q and k in pairs (2i, 2i + 1) for rotation.
    """

    names: tuple[str, ...]
    windows: Callable[[Fields, str, int], tuple[int, ...]]
    biases: Callable[[Fields], tuple[str, ...]]
    head_norms: bool = False
    interleaved: bool = False

    def spec(self, checkpoint: Checkpoint) -> ModelSpec:
        """The model's sizes and rotary frequencies. ModelError for anything missing or not supported."""
        return _spec_of_gguf(self, checkpoint) if checkpoint.layout == "gguf" else _spec_of_config(self, checkpoint)

    def weights(self, checkpoint: Checkpoint, spec: ModelSpec) -> Iterator[Weight]:
        """Every weight in model order, once all are known to be there, to have their shape, and to be all there is."""
        shapes = self._shapes(checkpoint, spec)
        expected = {tensor_name(checkpoint.layout, *place) for place in shapes}
        for name in checkpoint.names():
            if name not in expected and not changes_nothing(name) and not _is_tied_copy(checkpoint, spec, name):
                raise _fail(checkpoint, f"has the unknown tensor {name}; computing without it would be wrong")
        for (role, layer), shape in shapes.items():
            _check(checkpoint, tensor_name(checkpoint.layout, role, layer), shape)
        return self._read(checkpoint, spec, list(shapes))

    def _read(self, checkpoint: Checkpoint, spec: ModelSpec, places: list[tuple[str, int]]) -> Iterator[Weight]:
        for role, layer in places:
            tensor = checkpoint.tensor(tensor_name(checkpoint.layout, role, layer))
            if self.interleaved and checkpoint.layout == "gguf" and role in ("q", "k", "q_bias", "k_bias"):
                tensor = _half_order(tensor, spec.head_dim)
            yield Weight(role, layer, tensor)

    def _shapes(self, checkpoint: Checkpoint, spec: ModelSpec) -> dict[tuple[str, int], Shape]:
        """Role and layer of each weight the model must have, in model order, and its shape."""
        linear: dict[str, Shape] = {
            "q": (spec.heads * spec.head_dim, spec.hidden),
            "k": (spec.kv_heads * spec.head_dim, spec.hidden),
            "v": (spec.kv_heads * spec.head_dim, spec.hidden),
            "o": (spec.hidden, spec.heads * spec.head_dim),
            "gate": (spec.ffn, spec.hidden),
            "up": (spec.ffn, spec.hidden),
            "down": (spec.hidden, spec.ffn),
        }
        biases = self._biases(checkpoint)
        layer: dict[str, Shape] = {"attn_norm": (1, spec.hidden)}
        for role, shape in linear.items():
            if role == "o" and self.head_norms:
                layer |= {"q_norm": (1, spec.head_dim), "k_norm": (1, spec.head_dim)}
            if role == "gate":
                layer["ffn_norm"] = (1, spec.hidden)
            layer[role] = shape
            if role in biases:
                layer[f"{role}_bias"] = (1, shape[0])
        shapes = {("embed", -1): (spec.vocab, spec.hidden)}
        shapes |= {(role, index): shape for index in range(spec.layers) for role, shape in layer.items()}
        shapes["final_norm", -1] = (1, spec.hidden)
        if not spec.tied:
            shapes["head", -1] = (spec.vocab, spec.hidden)
        return shapes

    def _biases(self, checkpoint: Checkpoint) -> tuple[str, ...]:
        if checkpoint.layout == "hf":
            return self.biases(Fields(checkpoint.path, checkpoint.metadata))
        # GGUF metadata does not say; the first layer shows it and the others must agree.
        return tuple(role for role in _LINEARS if checkpoint.has(tensor_name("gguf", f"{role}_bias", 0)))


def _spec_of_config(family: Decoder, checkpoint: Checkpoint) -> ModelSpec:
    config = Fields(checkpoint.path, checkpoint.metadata)
    if "quantization_config" in config:
        method = config.section("quantization_config").text("quant_method", "unknown")
        raise config.fail(f"its weights are quantised by {method}, which is not supported; F32, F16 and BF16 are")
    activation = config.text("hidden_act", "silu")
    if activation != "silu":
        raise config.fail(f"hidden_act {activation} is not supported (silu is)")
    hidden, heads = _positive(config, "hidden_size"), _positive(config, "num_attention_heads")
    layers = _positive(config, "num_hidden_layers")
    head_dim = config.integer("head_dim", hidden // heads)
    rope = rope_of(checkpoint, config, head_dim, _positive(config, "max_position_embeddings"))
    return _checked(
        config,
        ModelSpec(
            architecture=checkpoint.architecture,
            layers=layers,
            hidden=hidden,
            heads=heads,
            kv_heads=config.integer("num_key_value_heads", heads),
            head_dim=head_dim,
            ffn=_positive(config, "intermediate_size"),
            vocab=_positive(config, "vocab_size"),
            context=rope.context,
            norm_eps=config.number("rms_norm_eps"),
            inv_freq=rope.inv_freq,
            rope_scale=rope.scale,
            windows=family.windows(config, "hf", layers),
            tied=config.flag("tie_word_embeddings", False),
        ),
    )


def _spec_of_gguf(family: Decoder, checkpoint: Checkpoint) -> ModelSpec:
    fields = Fields(checkpoint.path, checkpoint.metadata, f"{checkpoint.architecture}.")
    if fields.integer("expert_count", 0) > 0:
        raise fields.fail("expert_count: mixtures of experts are not supported")
    hidden, heads = _positive(fields, "embedding_length"), _positive(fields, "attention.head_count")
    layers = _positive(fields, "block_count")
    head_dim = fields.integer("attention.key_length", hidden // heads)
    if fields.integer("attention.value_length", head_dim) != head_dim:
        raise fields.fail("attention.value_length must equal attention.key_length")
    rope = rope_of(checkpoint, fields, head_dim, _positive(fields, "context_length"))
    return _checked(
        fields,
        ModelSpec(
            architecture=checkpoint.architecture,
            layers=layers,
            hidden=hidden,
            heads=heads,
            kv_heads=fields.integer("attention.head_count_kv", heads),
            head_dim=head_dim,
            ffn=_positive(fields, "feed_forward_length"),
            # vocab_size is optional in GGUF and the embedding is not.
            vocab=checkpoint.tensor(tensor_name("gguf", "embed", -1)).shape[0],
            context=rope.context,
            norm_eps=fields.number("attention.layer_norm_rms_epsilon"),
            inv_freq=rope.inv_freq,
            rope_scale=rope.scale,
            windows=family.windows(fields, "gguf", layers),
            tied=not checkpoint.has(tensor_name("gguf", "head", -1)),
        ),
    )


def _checked(fields: Fields, spec: ModelSpec) -> ModelSpec:
    if spec.kv_heads == 0 or spec.heads % spec.kv_heads:
        raise fields.fail(f"{spec.heads} heads cannot share {spec.kv_heads} key-value heads")
    if spec.head_dim == 0 or spec.head_dim % 2:
        raise fields.fail(f"a head size of {spec.head_dim} cannot be rotated in pairs")
    return spec


def _positive(fields: Fields, key: str) -> int:
    value = fields.integer(key)
    if value == 0:
        raise fields.fail(f"{key} must not be 0")
    return value


def _check(checkpoint: Checkpoint, name: str, shape: Shape) -> None:
    tensor = checkpoint.tensor(name)
    if tensor.shape != shape:
        raise _fail(checkpoint, f"tensor {name} has the shape {tensor.shape}, not {shape} as the metadata says")
    if shape[0] == 1 and tensor.type not in _VECTORS:
        raise _fail(checkpoint, f"tensor {name} has the type {tensor.type}; a norm or bias must be F32, F16 or BF16")


def _is_tied_copy(checkpoint: Checkpoint, spec: ModelSpec, name: str) -> bool:
    """Whether this is a head beside a tied embedding that says the same; some exporters write both."""
    if not spec.tied or name != tensor_name(checkpoint.layout, "head", -1):
        return False
    embed = checkpoint.tensor(tensor_name(checkpoint.layout, "embed", -1))
    head = checkpoint.tensor(name)
    return head.type == embed.type and np.array_equal(head.data, embed.data)


def _half_order(tensor: RawTensor, head_dim: int) -> RawTensor:
    """Rows (a bias: elements) of each head from the order (0, h, 1, h + 1, ...) to (0, 1, ..., h, h + 1, ...)."""
    rows = tensor.shape[0] if tensor.shape[0] > 1 else tensor.shape[1]
    pairs = tensor.data.reshape(rows // head_dim, head_dim // 2, 2, -1)
    return RawTensor(tensor.type, tensor.shape, pairs.swapaxes(1, 2).reshape(tensor.data.shape))


def _fail(checkpoint: Checkpoint, problem: str) -> ModelError:
    return ModelError(f"model {checkpoint.path} {problem}")
