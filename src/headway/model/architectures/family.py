"""What tells one family of decoders from another."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from headway.model.architectures.names import tensor_name
from headway.model.fields import Fields
from headway.model.spec import Activation, Checkpoint, Experts, Scales

Layout = Literal["gguf", "hf"]


@dataclass(frozen=True, slots=True)
class Sizes:
    """A model's dimensions as its metadata states them. `context`: positions before any stretching by rope scaling;
    `ffn`: of the feed-forward that every row takes, 0 where there are only experts."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    context: int
    norm_eps: float
    tied: bool
    experts: Experts | None


def full_attention(fields: Fields, layout: Layout, layers: int) -> tuple[int, ...]:
    """No windows."""
    return (0,) * layers


def all_rotate(fields: Fields, layout: Layout, layers: int) -> tuple[bool, ...]:
    """Rotary attention in every layer."""
    return (True,) * layers


def stated_biases(config: Fields) -> tuple[str, ...]:
    """The linears with a bias where config.json says so in the words of Llama."""
    attention = ("q", "k", "v", "o") if config.flag("attention_bias", False) else ()
    return attention + (("gate", "up", "down") if config.flag("mlp_bias", False) else ())


def as_it_is(checkpoint: Checkpoint) -> Checkpoint:
    """Nothing in it is called or ordered otherwise."""
    return checkpoint


def no_experts(fields: Fields, layout: Layout) -> tuple[Experts, int] | None:
    """A plain feed-forward."""
    if layout == "gguf" and fields.integer("expert_count", 0) > 0:
        raise fields.fail("expert_count: a mixture of experts is not supported for this architecture")
    return None


def usual_scales(fields: Fields, layout: Layout, sizes: Sizes) -> Scales:
    """Scores over the root of the head size, nothing else scaled."""
    return Scales(attention=sizes.head_dim**-0.5)


@dataclass(frozen=True, slots=True)
class Family:
    """Facts of a family; the defaults are Llama's.

    `names`: its architecture in GGUF files and model_types in config.json. `windows(fields, layout, layers)`: each
    layer's attention span; `rotates`: whether it rotates at all. `biases(config)`: linears that config.json gives a
    bias ("gate.": those of experts). `sinks`: attention has them. `head_norms`: q and k are normalised per "head", or
    over their whole "width". `pre_norms` and `post_norms`: attention and feed-forward normalise what they read, or what
    they add. `experts(fields, layout)`: the mixture of experts, if there is one, and the width of the feed-forward
    beside it. `activation`: config.json's key for the gate's, and the only value it may have; `gate`: what it means.
    `interleaved`: GGUF files hold the rows of q and k in pairs (2i, 2i + 1) for rotation. `partial`: only a part of
    each head may be rotated. `yarn_rounds`: GGUF files' YaRN begins and ends at whole dimensions (config.json says so
    itself). `local_base(fields, layout)`: windowed layers rotate plainly by this base. `norm_offset`: what
    config.json's models add to their norms' weights (GGUF files hold the sum). `tied`: the head is the embedding where
    config.json is silent. `fused`: roles that lie one after the other in one tensor. `view(checkpoint)`: the checkpoint
    with the usual names and metadata. `gguf_names`, `hf_names`: of roles that are called otherwise than in names.py.
    """

    names: tuple[str, ...]
    windows: Callable[[Fields, Layout, int], tuple[int, ...]] = full_attention
    rotates: Callable[[Fields, Layout, int], tuple[bool, ...]] = all_rotate
    biases: Callable[[Fields], tuple[str, ...]] = stated_biases
    scales: Callable[[Fields, Layout, Sizes], Scales] = usual_scales
    experts: Callable[[Fields, Layout], tuple[Experts, int] | None] = no_experts
    local_base: Callable[[Fields, Layout], float] | None = None
    head_norms: Literal["", "head", "width"] = ""
    pre_norms: bool = True
    post_norms: bool = False
    norm_offset: float = 0.0
    activation: tuple[str, str] = ("hidden_act", "silu")
    gate: Activation = "silu"
    sinks: bool = False
    interleaved: bool = False
    partial: bool = False
    yarn_rounds: bool = True
    tied: bool = False
    view: Callable[[Checkpoint], Checkpoint] = as_it_is
    fused: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    gguf_names: Mapping[str, str] = field(default_factory=dict)
    hf_names: Mapping[str, str] = field(default_factory=dict)

    def tensor_name(self, layout: Layout, role: str, layer: int) -> str:
        """The name of `role` (a Weight's, or one of `fused`) in a checkpoint; `layer` is -1 for the global ones."""
        return tensor_name(layout, role, layer, self.gguf_names if layout == "gguf" else self.hf_names)
