"""The GGUF reader: what it reads, and that no damaged file gets past it."""

import struct
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_gguf import llama_metadata, llama_tensors, write_gguf

from headway.core.errors import ModelError
from headway.model.gguf import GgufCheckpoint

GgufWriter = Callable[..., Path]


def test_reads_what_was_written(make_gguf: GgufWriter) -> None:
    checkpoint = GgufCheckpoint(make_gguf({"a.flag": True, "a.floats": [0.5, 2.0], "a.none": None}))
    assert checkpoint.architecture == "llama"
    assert checkpoint.metadata["llama.block_count"] == 1
    assert checkpoint.metadata["a.flag"] is True
    assert checkpoint.metadata["a.floats"] == [0.5, 2.0]
    assert checkpoint.metadata["tokenizer.ggml.tokens"] == llama_metadata()["tokenizer.ggml.tokens"]
    written = llama_tensors()
    assert set(checkpoint.names()) == set(written)
    for name, value in written.items():
        tensor = checkpoint.tensor(name)
        assert tensor.type == "F32"
        assert tensor.shape == (1 if value.ndim == 1 else len(value), value.shape[-1])
        assert np.array_equal(tensor.data.view(np.float32), value.reshape(tensor.shape))


def test_agrees_with_the_gguf_package(parity_fixtures: Path) -> None:
    for path in sorted((parity_fixtures / "gguf").glob("*.gguf")):
        checkpoint, reference = GgufCheckpoint(path), gguf.GGUFReader(path)
        assert set(checkpoint.names()) == {tensor.name for tensor in reference.tensors}
        for tensor in reference.tensors:
            ours = checkpoint.tensor(tensor.name)
            assert ours.type == tensor.tensor_type.name
            assert ours.data.tobytes() == tensor.data.tobytes()
        for key in checkpoint.metadata:
            assert checkpoint.metadata[key] == reference.fields[key].contents()


def test_a_missing_tensor_is_named(make_gguf: GgufWriter) -> None:
    with pytest.raises(ModelError, match=r"model\.gguf: tensor nowhere is missing"):
        GgufCheckpoint(make_gguf()).tensor("nowhere")


def test_views_outlive_the_checkpoint(make_gguf: GgufWriter) -> None:
    checkpoint = GgufCheckpoint(make_gguf())
    tensor = checkpoint.tensor("output_norm.weight")
    checkpoint.close()
    checkpoint.close()
    assert np.array_equal(tensor.data[0].view(np.float32), llama_tensors()["output_norm.weight"])


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_gguf(tmp_path_factory.mktemp("gguf") / "sound.gguf", llama_metadata(), llama_tensors())


def spoiled(sound: Path, data: bytes) -> Path:
    path = sound.with_name("spoiled.gguf")
    path.write_bytes(data)
    return path


def test_every_truncation_is_an_error(sound: Path) -> None:
    data = sound.read_bytes()
    header = data.index(b"output_norm.weight") + 64
    for size in [*range(0, header, 7), *range(header, len(data), 501), len(data) - 1]:
        with pytest.raises(ModelError, match=r"spoiled\.gguf"):
            GgufCheckpoint(spoiled(sound, data[:size]))


@settings(max_examples=300)
@given(at=st.integers(0, 2500), value=st.integers(0, 255), size=st.sampled_from([1, 8]))
def test_damage_is_an_error_or_harmless(sound: Path, at: int, value: int, size: int) -> None:
    data = bytearray(sound.read_bytes())
    data[at : at + size] = bytes([value]) * size
    try:
        checkpoint = GgufCheckpoint(spoiled(sound, bytes(data)))
        for key in checkpoint.metadata:
            checkpoint.metadata[key]
        for name in checkpoint.names():
            checkpoint.tensor(name).data.sum()
    except ModelError:
        pass


@pytest.mark.parametrize(
    ("offset", "value", "message"),
    [
        (0, b"GGML", "not a GGUF file"),
        (4, struct.pack("<I", 1), "version 1 is not supported"),
        (4, struct.pack(">I", 3), "big-endian"),
        (8, struct.pack("<Q", 1 << 60), "tensors do not fit"),
        (16, struct.pack("<Q", 1 << 60), "do not fit"),
        (24, struct.pack("<Q", 1 << 63), "truncated: a metadata key"),
    ],
)
def test_a_lying_header_is_an_error(sound: Path, offset: int, value: bytes, message: str) -> None:
    data = bytearray(sound.read_bytes())
    data[offset : offset + len(value)] = value
    with pytest.raises(ModelError, match=message):
        GgufCheckpoint(spoiled(sound, bytes(data)))


def test_an_unknown_type_is_named(make_gguf: GgufWriter) -> None:
    path = make_gguf(tensors={"token_embd.weight": np.zeros((4, 8), np.int32)})
    with pytest.raises(ModelError, match=r"token_embd\.weight has the type I32"):
        GgufCheckpoint(path)


def test_no_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="cannot be read"):
        GgufCheckpoint(tmp_path / "absent.gguf")
