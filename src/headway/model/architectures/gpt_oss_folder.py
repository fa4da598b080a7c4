"""A Hugging Face folder of gpt-oss as one that calls and orders its tensors as others do.

It holds the experts of a layer in one tensor for gate and up, by turns, and one for down: floats with inputs as rows,
or MXFP4 as blocks and scales apart.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from headway.core.errors import ModelError
from headway.model.architectures.mixture import MOST_EXPERTS
from headway.model.spec import Checkpoint, RawTensor

_TOGETHER = re.compile(
    r"(?P<at>model\.layers\.\d+\.mlp\.experts\.)(?P<part>gate_up|down)_proj(?P<kind>(_bias|_blocks|_scales)?)"
)
_APART = re.compile(
    r"(?P<at>model\.layers\.\d+\.mlp\.experts\.)(?P<expert>\d+)\.(?P<part>gate|up|down)_proj\.(?P<kind>weight|bias)"
)
_SINKS = re.compile(r"model\.layers\.\d+\.self_attn\.sinks")
_WIDTH = {"F32": 4, "F16": 2, "BF16": 2}
_BLOCK = 32  # weights under one scale
_YARN = {
    "rope_type": "yarn",
    "rope_theta": 150000.0,
    "factor": 32.0,
    "original_max_position_embeddings": 4096,
    "truncate": False,
}
_UNSAID = {"head_dim": 64, "rope_theta": 150000.0}  # what transformers takes then


def with_usual_names(checkpoint: Checkpoint) -> Checkpoint:
    """The checkpoint; GGUF files of gpt-oss have nothing unusual."""
    return GptOssFolder(checkpoint) if checkpoint.layout == "hf" else checkpoint


class GptOssFolder:
    """Shows each expert's gate, up and down as tensors of their own, made when asked for."""

    layout: Literal["gguf", "hf"] = "hf"

    def __init__(self, whole: Checkpoint) -> None:
        self._whole = whole
        self.path: Path = whole.path
        self.architecture = whole.architecture
        self.metadata: Mapping[str, Any] = _metadata(whole.metadata)
        count = self.metadata.get("num_local_experts")
        self._experts = count if type(count) is int and 0 < count <= MOST_EXPERTS else 1  # or it is refused
        self._names = dict(self._renamed())

    def names(self) -> Collection[str]:
        return self._names.keys()

    def has(self, name: str) -> bool:
        return name in self._names

    def tensor(self, name: str) -> RawTensor:
        found = _APART.fullmatch(name)
        if found is None or name not in self._names:
            return self._whole.tensor(self._names.get(name, name))
        stem = f"{found['at']}{'down' if found['part'] == 'down' else 'gate_up'}_proj"
        step = slice(None) if found["part"] == "down" else slice(found["part"] == "up", None, 2)
        expert = int(found["expert"])
        if found["kind"] == "bias":
            return self._bias(f"{stem}_bias", expert, step)
        return self._floats(stem, expert, step) if self._whole.has(stem) else self._blocks(stem, expert, step)

    def close(self) -> None:
        self._whole.close()

    def _renamed(self) -> Iterator[tuple[str, str]]:
        """Names as they are shown, and what they are in the folder."""
        for name in self._whole.names():
            found = _TOGETHER.fullmatch(name)
            if found and not (found["kind"] in ("_blocks", "_scales") and self._whole.has(name[:-7])):  # floats too
                kind = "bias" if found["kind"] == "_bias" else "weight"
                for part in ("gate", "up") if found["part"] == "gate_up" else ("down",):
                    yield from ((f"{found['at']}{i}.{part}_proj.{kind}", name) for i in range(self._experts))
            else:
                yield (f"{name}.weight" if _SINKS.fullmatch(name) else name), name

    def _of_expert(self, name: str, expert: int) -> RawTensor:
        """The rows that are the expert's."""
        tensor = self._whole.tensor(name)
        rows = tensor.shape[0] // self._experts
        if rows * self._experts != tensor.shape[0]:
            raise ModelError(f"model {self.path}: tensor {name} is not of {self._experts} experts")
        return RawTensor(tensor.type, (rows, tensor.shape[1]), tensor.data[expert * rows : (expert + 1) * rows])

    def _bias(self, name: str, expert: int, step: slice) -> RawTensor:
        bias = self._of_expert(name, expert)
        values = _elements(bias)[:, step]
        return RawTensor(bias.type, values.shape[:2], _bytes(values))

    def _floats(self, name: str, expert: int, step: slice) -> RawTensor:
        matrix = self._of_expert(name, expert)
        rows = _elements(matrix)[:, step].swapaxes(0, 1)
        return RawTensor(matrix.type, rows.shape[:2], _bytes(rows))

    def _blocks(self, stem: str, expert: int, step: slice) -> RawTensor:
        scales, blocks = self._of_expert(f"{stem}_scales", expert), self._of_expert(f"{stem}_blocks", expert)
        rows, groups = scales.shape
        if blocks.shape != (rows * groups, _BLOCK // 2) or {scales.type, blocks.type} != {"U8"} or not scales.nbytes:
            raise ModelError(f"model {self.path}: {stem}_blocks and {stem}_scales do not belong together")
        data = mxfp4(blocks.data.reshape(rows, groups, -1)[step], scales.data[step])
        return RawTensor("MXFP4", (len(data), groups * _BLOCK), data)


def _metadata(config: Mapping[str, Any]) -> dict[str, Any]:
    shown = {**_UNSAID, **config}
    if shown.get("rope_scaling") is None and shown.get("rope_parameters") is None:
        shown["rope_parameters"] = _YARN
    stated = shown.get("quantization_config")
    if isinstance(stated, Mapping) and stated.get("quant_method") == "mxfp4":
        del shown["quantization_config"]
    return shown


def _elements(tensor: RawTensor) -> NDArray[np.uint8]:
    """[rows, columns, bytes of one]"""
    return tensor.data.reshape(*tensor.shape, _WIDTH.get(tensor.type, 1))


def _bytes(elements: NDArray[np.uint8]) -> NDArray[np.uint8]:
    rows, columns, width = elements.shape
    return np.ascontiguousarray(elements).reshape(rows, columns * width)


def mxfp4(blocks: NDArray[np.uint8], scales: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Rows as GGUF has them, [rows, 17 groups], of `blocks` [rows, groups, 16] and `scales` [rows, groups].

    There a byte holds two neighbours, the first in its low half; here the i-th of the first 16 weights and of the last.
    """
    words = np.ascontiguousarray(blocks).view(np.uint64)  # eight bytes at once
    first, last, low = words[..., 0], words[..., 1], np.uint64(0x0F0F0F0F0F0F0F0F)
    out = np.empty((*scales.shape, 17), np.uint8)
    out[..., 0] = scales
    even = (first & low) | (last & low) << np.uint64(4)
    odd = (first >> np.uint64(4) & low) | (last & ~low)
    out[..., 1::2] = even[..., None].view(np.uint8)
    out[..., 2::2] = odd[..., None].view(np.uint8)
    return out.reshape(len(out), -1)
