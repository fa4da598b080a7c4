"""Where each weight of a model lies in its checkpoint, and what shape it must have."""

from dataclasses import dataclass

from headway.model.architectures.family import Family, Layout
from headway.model.fields import Fields
from headway.model.spec import Checkpoint, Experts, ModelSpec, RawTensor

Shape = tuple[int, int]  # rows, columns


@dataclass(frozen=True, slots=True)
class Place:
    """A weight's role and layer, the tensor it is in, that tensor's shape, and which of its rows are the weight's."""

    role: str
    layer: int
    name: str
    whole: Shape
    first: int
    rows: int

    def cut(self, tensor: RawTensor) -> RawTensor:
        """The weight's part of its tensor."""
        if self.rows == tensor.shape[0]:
            return tensor
        data = tensor.data[self.first : self.first + self.rows]
        return RawTensor(tensor.type, (self.rows, tensor.shape[1]), data)


def places(family: Family, checkpoint: Checkpoint, spec: ModelSpec) -> list[Place]:
    """All weights the model must have, in model order."""
    linear = _linears(spec)
    layer: dict[str, Shape] = {"attn_norm": (1, spec.hidden)} if family.pre_norms else {}
    layer |= _with_biases(family, checkpoint, {role: linear[role] for role in ("q", "k", "v")})
    if family.head_norms:
        widths = (spec.head_dim, spec.head_dim) if family.head_norms == "head" else (linear["q"][0], linear["k"][0])
        layer |= {"q_norm": (1, widths[0]), "k_norm": (1, widths[1])}
    if family.sinks:
        layer["sinks"] = (1, spec.heads)
    layer |= _with_biases(family, checkpoint, {"o": linear["o"]})
    if family.post_norms:
        layer["attn_post_norm"] = (1, spec.hidden)
    if family.pre_norms:
        layer["ffn_norm"] = (1, spec.hidden)
    if spec.ffn:
        layer |= _with_biases(family, checkpoint, {role: linear[role] for role in ("gate", "up", "down")})
    if spec.experts:
        layer |= _with_biases(family, checkpoint, _expert_shapes(spec, spec.experts))
    if family.post_norms:
        layer["ffn_post_norm"] = (1, spec.hidden)
    shapes = {("embed", -1): (spec.vocab, spec.hidden)}
    shapes |= {(role, index): shape for index in range(spec.layers) for role, shape in layer.items()}
    shapes["final_norm", -1] = (1, spec.hidden)
    if not spec.tied:
        shapes["head", -1] = (spec.vocab, spec.hidden)
    return [_place(family, checkpoint.layout, spec, role, index, shape) for (role, index), shape in shapes.items()]


def _expert_shapes(spec: ModelSpec, experts: Experts) -> dict[str, Shape]:
    shapes: dict[str, Shape] = {"router": (experts.count, spec.hidden)}
    if experts.shared_gate:
        shapes["shared_router"] = (1, spec.hidden)
    for expert in range(experts.count):
        shapes[f"gate.{expert}"] = shapes[f"up.{expert}"] = (experts.ffn, spec.hidden)
        shapes[f"down.{expert}"] = (spec.hidden, experts.ffn)
    return shapes


def _linears(spec: ModelSpec) -> dict[str, Shape]:
    return {
        "q": (spec.heads * spec.head_dim, spec.hidden),
        "k": (spec.kv_heads * spec.head_dim, spec.hidden),
        "v": (spec.kv_heads * spec.head_dim, spec.hidden),
        "o": (spec.hidden, spec.heads * spec.head_dim),
        "gate": (spec.ffn, spec.hidden),
        "up": (spec.ffn, spec.hidden),
        "down": (spec.hidden, spec.ffn),
    }


def _with_biases(family: Family, checkpoint: Checkpoint, shapes: dict[str, Shape]) -> dict[str, Shape]:
    """Each linear, followed by its bias where it has one."""
    if checkpoint.layout == "hf":
        stated = family.biases(Fields(checkpoint.path, checkpoint.metadata))
        biased = [role for role in shapes if "".join(role.partition(".")[:2]) in stated]
    else:
        # GGUF metadata does not say; the first layer shows it and the others must agree.
        biased = [role for role in shapes if checkpoint.has(family.tensor_name("gguf", f"{role}_bias", 0))]
    found = {}
    for role, shape in shapes.items():
        found[role] = shape
        if role in biased:
            found[f"{role}_bias"] = (1, shape[0])
    return found


def _place(family: Family, layout: Layout, spec: ModelSpec, role: str, layer: int, shape: Shape) -> Place:
    linear = _linears(spec)
    for whole, parts in family.fused.items():
        if role in parts:
            rows = [linear[part][0] for part in parts]
            first = sum(rows[: parts.index(role)])
            return Place(role, layer, family.tensor_name(layout, whole, layer), (sum(rows), shape[1]), first, shape[0])
    name = family.tensor_name(layout, role, layer)
    _, of_expert, expert = role.removesuffix("_bias").partition(".")
    if of_expert and layout == "gguf" and spec.experts:
        return Place(role, layer, name, (spec.experts.count * shape[0], shape[1]), int(expert) * shape[0], shape[0])
    return Place(role, layer, name, shape, 0, shape[0])
