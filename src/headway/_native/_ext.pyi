from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

BLOCK: int
LOGIT_ROWS: int
PACKING: int

class Activation:
    SILU: Activation
    GELU: Activation
    CLAMPED_SILU: Activation

class KvType:
    F16: KvType
    INT8: KvType

def best_isa() -> str: ...
def packed_bytes(type: str, rows: int, columns: int) -> int: ...
def pack(type: str, rows: int, columns: int, data: Any) -> NDArray[np.uint8]: ...
def quantise(type: str, rows: int, columns: int, data: Any, to: str) -> NDArray[np.uint8]: ...
def dequantise(type: str, rows: int, columns: int, data: Any) -> NDArray[np.float32]: ...
def checksum(data: Any) -> int: ...
def kv_head_bytes(type: KvType, head_dim: int) -> int: ...
def probe(threads: int) -> tuple[float, float]: ...

class Config:
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    context: int
    norm_eps: float
    rope_scale: float
    inv_freq: list[list[float]]
    ropes: list[int]
    windows: list[int]
    groups: list[list[int]]
    attention_scale: float
    attention_cap: float
    logit_cap: float
    embed_scale: float
    residual_scale: float
    activation: Activation
    experts: int
    active_experts: int
    expert_ffn: int
    renormalise: bool
    tied: bool

class Limits:
    kv: KvType
    threads: int
    blocks: int
    slots: int
    max_tokens: int

class Sampling:
    temperature: float
    top_p: float
    top_k: int
    min_p: float
    repetition_penalty: float
    presence_penalty: float
    frequency_penalty: float
    min_tokens: int
    logprobs: int
    choice: int
    seed: int
    logit_bias: list[tuple[int, float]]
    end_ids: list[int]
    masked: bool

class Sampled:
    @property
    def token(self) -> int: ...
    @property
    def finite(self) -> bool: ...
    @property
    def allowed(self) -> bool: ...
    @property
    def logprob(self) -> float: ...
    @property
    def top(self) -> list[tuple[int, float]]: ...

# Buffers: anything with the buffer protocol, of the type that bind/module.cpp names. `packed` stays in use; where it is
# given, `data` may be None.
class Core:
    def __init__(self, config: Config, limits: Limits) -> None: ...
    def load(
        self, role: str, layer: int, type: str, rows: int, columns: int, data: Any, packed: Any = None
    ) -> None: ...
    def finish(self) -> None: ...
    def open(self, slot: int, sampling: Sampling, known: Any, prompt: int) -> None: ...
    def extend(self, slot: int, tokens: Any) -> None: ...
    def copy_block(self, source: int, target: int) -> None: ...
    def step(
        self, header: Any, tokens: Any, tables: Any, masks: Any = None, ready: Callable[[], object] | None = None
    ) -> list[Sampled]: ...
    def logits(self, sample: int) -> NDArray[np.float32]: ...
    @property
    def isa(self) -> str: ...
    @property
    def weight_bytes(self) -> int: ...
    @property
    def expert_bytes(self) -> int: ...
    @property
    def embedding_bytes(self) -> int: ...
    @property
    def kv_bytes(self) -> int: ...
