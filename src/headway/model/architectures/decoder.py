"""The one decoder that ModelSpec describes, read from either kind of checkpoint; families differ in a few facts."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from headway.core.errors import ModelError
from headway.model.architectures.family import Family
from headway.model.architectures.names import changes_nothing
from headway.model.architectures.places import Place, places
from headway.model.architectures.rope import plain_frequencies, rope_of
from headway.model.architectures.sizes import fields_of, sizes_of
from headway.model.fields import MOST
from headway.model.spec import TENSOR_TYPES, Checkpoint, ModelSpec, RawTensor, Weight, floats

_VECTORS = ("F32", "F16", "BF16")  # types of norms and biases


class Decoder(Family):
    """A model family, an Architecture."""

    __slots__ = ()

    def spec(self, checkpoint: Checkpoint, context: int | None = None) -> ModelSpec:
        """The model's sizes and rotary frequencies, to serve sequences of up to `context` tokens (None: all it can).

        ModelError for anything missing or not supported.
        """
        checkpoint = self.view(checkpoint)
        try:
            with np.errstate(divide="raise", over="raise", invalid="raise"):
                spec = self._spec(checkpoint, context)
        except (ArithmeticError, ValueError) as error:  # a base of 0, a factor beyond floats, a logarithm of nothing
            raise _fail(checkpoint, f"has numbers from which nothing can be computed ({error})") from error
        if spec.context > MOST:
            raise _fail(checkpoint, f"has a context of {spec.context} tokens; more than {MOST} are not supported")
        return spec

    def _spec(self, checkpoint: Checkpoint, context: int | None) -> ModelSpec:
        fields, sizes = fields_of(checkpoint), sizes_of(self, checkpoint)
        layout, layers = checkpoint.layout, sizes.layers
        rope = rope_of(checkpoint, fields, self, sizes.head_dim, sizes.context, context or sizes.context)
        windows = self.windows(fields, layout, layers)
        rotates = self.rotates(fields, layout, layers)
        frequencies, local = [rope.inv_freq], 0
        if self.local_base and any(windows):
            if rope.scale != 1:
                raise fields.fail("a rope scaling with an attention factor is not supported beside windowed layers")
            base = self.local_base(fields, layout)
            frequencies.append(plain_frequencies(base, sizes.head_dim).astype(np.float32))
            local = 1
        return ModelSpec(
            architecture=checkpoint.architecture,
            layers=layers,
            hidden=sizes.hidden,
            heads=sizes.heads,
            kv_heads=sizes.kv_heads,
            head_dim=sizes.head_dim,
            ffn=sizes.ffn,
            vocab=sizes.vocab,
            context=rope.context,
            norm_eps=sizes.norm_eps,
            inv_freq=np.stack(frequencies),
            rope_scale=rope.scale,
            ropes=tuple((local if window else 0) if on else -1 for window, on in zip(windows, rotates, strict=True)),
            windows=windows,
            tied=sizes.tied,
            activation=self.gate,
            scales=self.scales(fields, layout, sizes),
            experts=sizes.experts,
        )

    def weights(self, checkpoint: Checkpoint, spec: ModelSpec) -> Iterator[Weight]:
        """Every weight in model order, once all are known to be there, to have their shape, and to be all there is."""
        checkpoint = self.view(checkpoint)
        there = places(self, checkpoint, spec)
        expected = {place.name for place in there}
        for name in checkpoint.names():
            if name not in expected and not changes_nothing(name) and not _is_tied_copy(self, checkpoint, spec, name):
                raise _fail(checkpoint, f"has the unknown tensor {name}; computing without it would be wrong")
        for place in there:
            _check(checkpoint, place)
        return (Weight(place.role, place.layer, self._read(checkpoint, spec, place)) for place in there)

    def _read(self, checkpoint: Checkpoint, spec: ModelSpec, place: Place) -> RawTensor:
        tensor = place.cut(checkpoint.tensor(place.name))
        if self.interleaved and checkpoint.layout == "gguf" and place.role in ("q", "k", "q_bias", "k_bias"):
            return _half_order(tensor, spec.head_dim)
        if self.norm_offset and checkpoint.layout == "hf" and place.role.endswith("_norm"):
            tensor = _vector(floats(tensor) + np.float32(self.norm_offset))
        if place.role == "final_norm" and spec.scales.logits != 1:
            tensor = _vector(floats(tensor) * np.float32(spec.scales.logits))
        return tensor


def _vector(values: NDArray[np.float32]) -> RawTensor:
    return RawTensor("F32", (1, values.size), values.reshape(1, -1).view(np.uint8))


def _check(checkpoint: Checkpoint, place: Place) -> None:
    tensor, shape = checkpoint.tensor(place.name), place.whole
    if tensor.shape != shape:
        raise _fail(checkpoint, f"tensor {place.name} has the shape {tensor.shape}, not {shape} as the metadata says")
    if place.rows == 1 and tensor.type not in _VECTORS:
        raise _fail(
            checkpoint, f"tensor {place.name} has the type {tensor.type}; a norm or bias must be F32, F16 or BF16"
        )
    if tensor.type not in TENSOR_TYPES:
        raise _fail(checkpoint, f"tensor {place.name} is {tensor.type}; supported are {', '.join(TENSOR_TYPES)}")


def _is_tied_copy(family: Family, checkpoint: Checkpoint, spec: ModelSpec, name: str) -> bool:
    """Whether this is a head beside a tied embedding that says the same; some exporters write both."""
    if not spec.tied or name != family.tensor_name(checkpoint.layout, "head", -1):
        return False
    embed = checkpoint.tensor(family.tensor_name(checkpoint.layout, "embed", -1))
    head = checkpoint.tensor(name)
    return head.type == embed.type and np.array_equal(head.data, embed.data)


def _half_order(tensor: RawTensor, head_dim: int) -> RawTensor:
    """Rows (a bias: elements) of each head from the order (0, h, 1, h + 1, ...) to (0, 1, ..., h, h + 1, ...)."""
    rows = tensor.shape[0] if tensor.shape[0] > 1 else tensor.shape[1]
    pairs = tensor.data.reshape(rows // head_dim, head_dim // 2, 2, -1)
    return RawTensor(tensor.type, tensor.shape, pairs.swapaxes(1, 2).reshape(tensor.data.shape))


def _fail(checkpoint: Checkpoint, problem: str) -> ModelError:
    return ModelError(f"model {checkpoint.path} {problem}")
