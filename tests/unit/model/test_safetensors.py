"""Hugging Face folders: single and sharded files, and what is wrong with broken ones."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import save_file

from headway.core.errors import ModelError
from headway.model.safetensors import SafetensorsCheckpoint

CONFIG = json.dumps({"model_type": "Llama"})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(CONFIG)
    return tmp_path


def raw(header: Any, data: bytes) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def test_reads_one_file(folder: Path) -> None:
    values: dict[str, NDArray[Any]] = {
        "a": np.arange(6, dtype=np.float32).reshape(2, 3),
        "b": np.arange(4, dtype=np.float16),
    }
    save_file(values, folder / "model.safetensors", metadata={"format": "pt"})
    checkpoint = SafetensorsCheckpoint(folder)
    assert checkpoint.architecture == "llama"
    assert set(checkpoint.names()) == {"a", "b"}
    assert (checkpoint.tensor("a").type, checkpoint.tensor("a").shape) == ("F32", (2, 3))
    assert (checkpoint.tensor("b").type, checkpoint.tensor("b").shape) == ("F16", (1, 4))
    assert np.array_equal(checkpoint.tensor("a").data.view(np.float32), values["a"])
    with pytest.raises(ModelError, match="tensor c is missing"):
        checkpoint.tensor("c")
    kept = checkpoint.tensor("b")
    checkpoint.close()
    assert np.array_equal(kept.data[0].view(np.float16), values["b"])


def test_reads_bfloat16(folder: Path) -> None:
    entry = {"dtype": "BF16", "shape": [2, 2], "data_offsets": [0, 8]}
    (folder / "model.safetensors").write_bytes(raw({"w": entry}, bytes(range(8))))
    tensor = SafetensorsCheckpoint(folder).tensor("w")
    assert (tensor.type, tensor.shape, tensor.data.tobytes()) == ("BF16", (2, 2), bytes(range(8)))


def sharded(folder: Path, weight_map: dict[str, str]) -> None:
    save_file({"a": np.zeros(2, np.float32)}, folder / "one.safetensors")
    save_file({"b": np.ones(2, np.float32)}, folder / "two.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))


def test_reads_shards(folder: Path) -> None:
    sharded(folder, {"a": "one.safetensors", "b": "two.safetensors"})
    checkpoint = SafetensorsCheckpoint(folder)
    assert np.array_equal(checkpoint.tensor("b").data.view(np.float32), np.ones((1, 2), np.float32))


@pytest.mark.parametrize(
    ("weight_map", "message"),
    [
        ({"a": "one.safetensors", "c": "two.safetensors"}, "tensor c, which"),
        ({"a": "three.safetensors"}, r"three\.safetensors cannot be read"),
        ({"a": "../one.safetensors"}, "outside its folder"),
        ({"a": 3}, "has no weight_map"),
    ],
)
def test_a_wrong_index_is_an_error(folder: Path, weight_map: dict[str, str], message: str) -> None:
    sharded(folder, weight_map)
    with pytest.raises(ModelError, match=message):
        SafetensorsCheckpoint(folder)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "cannot be read"),
        (b"\x05", "truncated"),
        ((1 << 60).to_bytes(8, "little") + b"{}", "truncated"),
        (raw(b"not json", b""), "header is not JSON"),
        (raw([], b""), "header is not an object"),
        (raw({"w": 3}, b""), "malformed entry"),
        (raw({"w": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}}, b"1234"), "malformed entry"),
        (raw({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}, b"1234"), "truncated: tensor w"),
        (raw({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}, b"1234"), "has 4 bytes"),
        (raw({n: {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]} for n in "ab"}, b"1234"), "overlaps"),
    ],
)
def test_a_damaged_file_is_an_error(folder: Path, content: bytes, message: str) -> None:
    (folder / "model.safetensors").write_bytes(content)
    with pytest.raises(ModelError, match=message):
        SafetensorsCheckpoint(folder)


def test_every_truncation_is_an_error(copy_model: Callable[..., Path]) -> None:
    folder = copy_model("qwen2")
    data = (folder / "model.safetensors").read_bytes()
    for size in [*range(0, 2000, 37), *range(2000, len(data), 4999), len(data) - 1]:
        (folder / "model.safetensors").write_bytes(data[:size])
        with pytest.raises(ModelError):
            SafetensorsCheckpoint(folder)


def test_an_unsupported_type_is_named(folder: Path) -> None:
    save_file({"w": np.zeros(2, np.int64)}, folder / "model.safetensors")
    with pytest.raises(ModelError, match="tensor w is I64"):
        SafetensorsCheckpoint(folder).tensor("w")


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"config\.json does not exist"):
        SafetensorsCheckpoint(tmp_path)
    (tmp_path / "config.json").write_text(CONFIG)
    with pytest.raises(ModelError, match=r"neither model\.safetensors nor"):
        SafetensorsCheckpoint(tmp_path)
    (tmp_path / "pytorch_model.bin").touch()
    with pytest.raises(ModelError, match=r"there are \.bin weights"):
        SafetensorsCheckpoint(tmp_path)


@pytest.mark.parametrize("config", ["[]", "{", "{}"])
def test_a_wrong_config_is_an_error(tmp_path: Path, config: str) -> None:
    (tmp_path / "config.json").write_text(config)
    with pytest.raises(ModelError, match=r"config\.json"):
        SafetensorsCheckpoint(tmp_path)
