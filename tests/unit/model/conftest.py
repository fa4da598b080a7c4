"""Small checkpoints written on the spot, to be spoiled by the tests."""

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # makes tiny_gguf importable in every pytest import mode
sys.path.insert(0, str(Path(__file__).parents[2] / "wire"))  # for server_rig

from tiny_gguf import llama_metadata, llama_tensors, write_gguf


@pytest.fixture
def make_gguf(tmp_path: Path) -> Callable[..., Path]:
    """A one-layer llama file with changed metadata and tensors; None removes an entry."""

    def make(
        metadata: Mapping[str, Any] | None = None,
        tensors: Mapping[str, Any] | None = None,
        architecture: str = "llama",
    ) -> Path:
        entries = {**llama_metadata(), **(metadata or {})}
        arrays = {**llama_tensors(), **(tensors or {})}
        return write_gguf(
            tmp_path / "model.gguf",
            {key: value for key, value in entries.items() if value is not None},
            {key: value for key, value in arrays.items() if value is not None},
            architecture,
        )

    return make


@pytest.fixture
def copy_model(tmp_path: Path, parity_fixtures: Path) -> Callable[..., Path]:
    """A copy of a tiny Hugging Face folder with changed entries of its JSON files; None removes a file or an entry."""

    def copy(name: str, **changes: Mapping[str, Any] | None) -> Path:
        target = tmp_path / name
        target.mkdir()
        for source in (parity_fixtures / "hf" / name).iterdir():
            (target / source.name).write_bytes(source.read_bytes())
        for stem, change in changes.items():
            path = target / f"{stem}.json"
            if change is None:
                path.unlink()
                continue
            content = json.loads(path.read_text()) if path.is_file() else {}
            kept = {key: value for key, value in content.items() if key not in change}
            path.write_text(json.dumps(kept | {key: value for key, value in change.items() if value is not None}))
        return target

    return copy
