"""What a checkpoint says of its model, in the terms the runners use."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

# Tensor types a runner must take, by their ggml names.
TENSOR_TYPES = ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K", "MXFP4")


# What a feed-forward makes of gate and up: up times SiLU of the gate, or its GELU in the tanh form. Clamped: with the
# gate at most 7 and the up within 7, (up + 1) gate sigmoid(1.702 gate).
Activation = Literal["silu", "gelu", "clamped_silu"]


@dataclass(frozen=True, slots=True)
class RawTensor:
    """One tensor as it lies in the file: `data` is uint8 [rows, bytes per row] (a vector has one row), usually a view
    of the mapped file, whose start may be unaligned; `shape` is (rows, columns) in elements."""

    type: str
    shape: tuple[int, int]
    data: NDArray[np.uint8]

    @property
    def nbytes(self) -> int:
        return int(self.data.nbytes)


class Checkpoint(Protocol):
    """An opened GGUF file or Hugging Face folder. Reading checks sizes, so that a truncated file is a ModelError."""

    @property
    def path(self) -> Path: ...  # the file or folder, for messages

    @property
    def layout(self) -> Literal["gguf", "hf"]: ...  # whose tensor names and metadata keys it uses

    @property
    def architecture(self) -> str: ...  # "llama", "qwen2", "qwen3", ... lower case, or whatever the file says

    @property
    def metadata(self) -> Mapping[str, Any]: ...  # GGUF key-values or config.json

    def tensor(self, name: str) -> RawTensor: ...  # ModelError if missing

    def has(self, name: str) -> bool: ...

    def names(self) -> Collection[str]: ...  # all tensors

    def close(self) -> None: ...  # lets go of the mapped pages


def floats(tensor: RawTensor) -> NDArray[np.float32]:
    """The values, [rows, columns], of an F32, F16 or BF16 tensor."""
    data = np.ascontiguousarray(tensor.data)
    if tensor.type == "BF16":
        return (data.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    return data.view(np.float32 if tensor.type == "F32" else np.float16).astype(np.float32)


@dataclass(frozen=True, slots=True)
class Scales:
    """What a model multiplies, or bounds: a value x with the cap c becomes c tanh(x / c), with the cap 0 stays."""

    attention: float  # multiplies scores
    embedding: float = 1.0
    residual: float = 1.0  # multiplies what attention and feed-forward add
    logits: float = 1.0  # an Architecture puts it into final_norm
    attention_cap: float = 0.0
    logit_cap: float = 0.0


@dataclass(frozen=True, slots=True)
class Experts:
    """A mixture of experts in every layer. The router's softmax is over all of them; each row takes the `active` best.

    A feed-forward that every row takes besides (ModelSpec.ffn wide) may have a gate of its own, one number per row.
    """

    count: int
    active: int
    ffn: int  # width of each
    renormalise: bool  # the active ones' weights are brought to the sum of 1
    shared_gate: bool


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """A decoder-only transformer: RMSNorm, rotary attention with grouped heads, gated feed-forward.

    Optional parts (biases, sinks, norms of q and k, norms before and after attention and feed-forward) are present
    exactly if their weights are.
    """

    architecture: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int  # of the feed-forward that every row takes; 0: there are only experts
    vocab: int
    context: int
    norm_eps: float
    inv_freq: NDArray[np.float32]  # [ways to rotate, rotated dimensions / 2], every scaling already applied
    rope_scale: float  # multiplies cos and sin (YaRN's attention factor), else 1
    ropes: tuple[int, ...]  # per layer: the row of inv_freq it rotates by; -1: none
    windows: tuple[int, ...]  # per layer: keys a query sees, itself included; 0: all
    tied: bool  # the output head is the embedding
    activation: Activation
    scales: Scales
    experts: Experts | None = None

    @property
    def layer_macs(self) -> int:
        """Multiply-adds with weights for one token in all layers; of experts, with the active ones'."""
        attention = self.hidden * self.head_dim * (2 * self.heads + 2 * self.kv_heads)
        feed_forward = 3 * self.ffn
        if self.experts:
            feed_forward += self.experts.count + self.experts.shared_gate + 3 * self.experts.active * self.experts.ffn
        return self.layers * (attention + self.hidden * feed_forward)

    @property
    def head_macs(self) -> int:
        return self.vocab * self.hidden


@dataclass(frozen=True, slots=True)
class Weight:
    """A tensor and its place. Rotary dimensions are in "half" order (pair i with i + head_dim/2): an architecture whose
    file interleaves them permutes the rows of q and k.

    Roles: embed, head (absent if tied), final_norm; per layer: attn_norm, q, k, v, o, q_norm, k_norm (of a head's size
    or of all heads'), sinks (per query head the score of a key without a value, which takes its share of attention),
    attn_post_norm, ffn_norm, gate, up, down, ffn_post_norm, and <linear>_bias; with experts router, shared_router (of
    the feed-forward beside them), gate.<expert>, up.<expert>, down.<expert>, and their biases. `layer` is -1 for the
    global ones. Norms, sinks and biases are F32, F16 or BF16 vectors.
    """

    role: str
    layer: int
    tensor: RawTensor


class Architecture(Protocol):
    """A model family: a module or object that reads its spec and weights from either kind of checkpoint."""

    def spec(self, checkpoint: Checkpoint, context: int | None = None) -> ModelSpec: ...  # of sequences that long

    def weights(self, checkpoint: Checkpoint, spec: ModelSpec) -> Iterator[Weight]: ...
