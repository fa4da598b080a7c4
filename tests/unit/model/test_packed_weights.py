"""Packed weights on disk: a start that maps them computes the same bits, and what is not whole is never used."""

import errno
import os
import threading
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from runner_logits import SETTINGS, logits_of

import headway._native as _native
from headway.core.config import EngineSettings
from headway.model import packed_weights
from headway.model.load import load_runner
from headway.model.packed_weights import find_or_make

# Of 256 weights.
ROW_BYTES = {"F32": 1024, "F16": 512, "BF16": 512, "Q8_0": 272, "Q4_0": 144, "Q4_1": 160, "Q5_0": 176, "Q5_1": 192}
ROW_BYTES |= {"Q4_K": 144, "Q5_K": 176, "Q6_K": 210}
PACKED = {1: "d950cb0986292915"}  # by _native.PACKING


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where packed weights are kept, of models however small."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(packed_weights, "LEAST_BYTES", 0)
    return tmp_path / "headway" / "weights"


@pytest.fixture
def model(parity_fixtures: Path) -> Path:
    return parity_fixtures / "hf" / "qwen3_tied"


def uncached(model: Path, settings: EngineSettings = SETTINGS) -> NDArray[np.float32]:
    return logits_of(model, settings.model_copy(update={"weights_cache": False}))


def refuse(*given: object) -> None:
    raise AssertionError("packed again")


def the_file(folder: Path) -> Path:
    (file,) = folder.iterdir()
    return file


@pytest.mark.parametrize(
    ("name", "quantize"),
    [
        ("gguf/llama_llama3-q4_1.gguf", "none"),
        ("hf/qwen3_tied", "none"),
        ("hf/llama_llama3", "int8"),
        ("hf/llama_llama3", "int4"),
    ],
)
def test_a_second_start_packs_nothing_and_gives_the_same_bits(
    name: str, quantize: str, folder: Path, parity_fixtures: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, settings = parity_fixtures / name, SETTINGS.model_copy(update={"quantize": quantize})
    expected = uncached(path, settings)
    np.testing.assert_array_equal(logits_of(path, settings), expected)
    monkeypatch.setattr(_native, "pack", refuse)
    monkeypatch.setattr(_native, "quantise", refuse)
    np.testing.assert_array_equal(logits_of(path, settings), expected)


def cut(file: Path) -> None:
    os.truncate(file, file.stat().st_size - 1)


def empty(file: Path) -> None:
    os.truncate(file, 0)


def lengthened(file: Path) -> None:
    file.write_bytes(file.read_bytes() + b"\0")


def one_bit(at: int) -> Callable[[Path], None]:
    def spoil(file: Path) -> None:
        content = bytearray(file.read_bytes())
        content[at] ^= 1
        file.write_bytes(content)

    return spoil


def never_written(file: Path) -> None:
    file.write_bytes(bytes(file.stat().st_size))


def a_folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


@pytest.mark.parametrize(
    "spoil", [cut, empty, lengthened, one_bit(0), one_bit(20), one_bit(60), one_bit(5000), one_bit(-1), never_written]
)
def test_what_is_damaged_is_not_used_but_made_anew(
    spoil: Callable[[Path], None], folder: Path, model: Path, caplog: pytest.LogCaptureFixture
) -> None:
    expected = logits_of(model)
    good = the_file(folder).read_bytes()
    spoil(the_file(folder))
    np.testing.assert_array_equal(logits_of(model), expected)
    assert "damaged" in caplog.text
    assert the_file(folder).read_bytes() == good


def test_weights_of_another_model_are_not_used(folder: Path, model: Path, parity_fixtures: Path) -> None:
    expected = logits_of(model)
    mine = the_file(folder)
    logits_of(parity_fixtures / "hf" / "qwen2")
    (other,) = set(folder.iterdir()) - {mine}
    mine.write_bytes(other.read_bytes())
    np.testing.assert_array_equal(logits_of(model), expected)


def test_weights_packed_otherwise_are_not_used(folder: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = logits_of(model)
    monkeypatch.setattr(_native, "PACKING", _native.PACKING + 1)
    old = the_file(folder)
    old.write_bytes(b"whatever a former version wrote")
    np.testing.assert_array_equal(logits_of(model), expected)
    assert len(list(folder.iterdir())) == 2


def test_a_changed_file_is_another_model(
    folder: Path, copy_model: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even where no sample of the fingerprint is touched."""
    path = copy_model("qwen2")
    logits_of(path)
    os.utime(path / "model.safetensors", (1, 1))
    monkeypatch.setattr(_native, "pack", refuse)
    with pytest.raises(AssertionError):
        logits_of(path)


def test_packing_has_a_number_for_each_form() -> None:
    """Whoever changes what pack() writes counts kPacking up, and puts the new digest here: former files are then left
    alone."""
    digest = blake2b(digest_size=8)
    for type_, size in ROW_BYTES.items():
        for rows in (16, 40):
            data = np.arange(rows * size, dtype=np.uint64) * 2654435761 >> 13
            digest.update(_native.pack(type_, rows, 256, data.astype(np.uint8)))
    assert PACKED[_native.PACKING] == digest.hexdigest()


def test_nowhere_to_write(model: Path, folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder.parent.mkdir()
    folder.write_text("in the way")
    np.testing.assert_array_equal(logits_of(model), uncached(model))
    assert "not kept" in caplog.text


def test_a_full_disk_leaves_nothing_behind(
    model: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(fd: int, data: memoryview) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    np.testing.assert_array_equal(logits_of(model), uncached(model))
    assert "No space left" in caplog.text
    assert list(folder.iterdir()) == []


def test_a_folder_in_place_of_the_file(model: Path, folder: Path) -> None:
    expected = logits_of(model)
    a_folder(the_file(folder))
    np.testing.assert_array_equal(logits_of(model), expected)


def test_several_starts_at_once(model: Path, folder: Path) -> None:
    expected, results = uncached(model), []
    barrier = threading.Barrier(4)

    def start() -> None:
        barrier.wait()
        results.append(logits_of(model))

    threads = [threading.Thread(target=start) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 4
    for result in results:
        np.testing.assert_array_equal(result, expected)
    assert the_file(folder).suffix == ".weights"


def test_mapped_pages_belong_to_the_file(model: Path, folder: Path) -> None:
    """So that engines share them, and the system may take them back: no private copy is made."""
    logits_of(model)
    runner = load_runner(model, SETTINGS)
    name, inside, seen = str(the_file(folder)), False, {}
    for line in Path("/proc/self/smaps").read_text().splitlines():
        key, *rest = line.split()
        if not key.endswith(":"):
            inside = line.endswith(name)
            if inside:
                assert rest[0] == "r--s"
        elif inside:
            seen[key] = rest[0]
    runner.close()
    assert seen["Anonymous:"] == "0"
    assert int(seen["Rss:"]) > 0


def test_the_least_recently_used_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed_weights, "LEAST_BYTES", 0)
    monkeypatch.setattr(packed_weights, "MOST_FILES", 3)
    keys = [bytes([n]) * 32 for n in range(5)]
    (tmp_path / "left.part").touch()
    os.utime(tmp_path / "left.part", (1, 1))
    for n, key in enumerate(keys):
        view = find_or_make(tmp_path, key, 64, [np.full(64, n, np.uint8)])
        assert view is not None and view.tobytes() == bytes([n]) * 64
        os.utime(tmp_path / f"{key.hex()[:32]}.weights", (n + 10, n + 10))
        if n == 2:
            assert find_or_make(tmp_path, keys[0], 64, []) is not None  # used again, so now the newest
    assert {path.name for path in tmp_path.iterdir()} == {f"{keys[n].hex()[:32]}.weights" for n in (0, 3, 4)}


def test_what_is_too_large_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed_weights, "LEAST_BYTES", 0)
    monkeypatch.setattr(packed_weights, "MOST_BYTES", 63)
    assert find_or_make(tmp_path, bytes(32), 64, [np.zeros(64, np.uint8)]) is None
    assert list(tmp_path.iterdir()) == []
