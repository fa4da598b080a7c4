"""Hugging Face folders: config.json and one or more .safetensors files, mapped without copies.

The safetensors package has no bfloat16 for numpy, so the documented header (8-byte length, JSON, data) is read here.
"""

import json
import math
import mmap
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from headway.core.errors import ModelError
from headway.model.mapped import map_file, release
from headway.model.spec import RawTensor

_INDEX = "model.safetensors.index.json"
_SINGLE = "model.safetensors"
_MAX_HEADER = 100_000_000  # the format's own limit, bytes
_BYTES = {"F32": 4, "F16": 2, "BF16": 2, "U8": 1}  # the types a runner takes, and bytes that a family makes them of


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in `path`; ModelError if it is missing or something else."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ModelError(f"{path} does not exist; a model folder needs it") from None
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(f"{path} cannot be read ({error})") from error
    if not isinstance(value, dict):
        raise ModelError(f"{path} does not hold a JSON object")
    return value


@dataclass(frozen=True, slots=True)
class _Place:
    shard: int
    type: str
    shape: tuple[int, ...]
    begin: int  # absolute bytes in the shard's file
    end: int


class SafetensorsCheckpoint:
    """An open folder. Raises ModelError, naming the file, for whatever is missing or does not fit its file's size."""

    layout: Literal["gguf", "hf"] = "hf"

    def __init__(self, folder: Path) -> None:
        self.path = folder
        self._config = read_json(folder / "config.json")
        if not isinstance(self._config.get("model_type"), str):
            raise ModelError(f"{folder / 'config.json'} does not say its model_type")
        self._maps: list[mmap.mmap] = []
        self._places: dict[str, _Place] = {}
        try:
            for name in self._shards():
                self._open(folder / name)
            self._check_index()
        except BaseException:
            self.close()
            raise

    @property
    def architecture(self) -> str:
        return str(self._config["model_type"]).lower()

    @property
    def metadata(self) -> Mapping[str, Any]:
        return self._config

    def names(self) -> Collection[str]:
        """All tensors' names."""
        return self._places.keys()

    def has(self, name: str) -> bool:
        return name in self._places

    def tensor(self, name: str) -> RawTensor:
        """A view of the mapped file; more than two dimensions are flattened into rows. Its start may be unaligned."""
        place = self._places.get(name)
        if place is None:
            raise ModelError(f"model folder {self.path}: tensor {name} is missing")
        if place.type not in _BYTES:
            raise ModelError(
                f"model folder {self.path}: tensor {name} is {place.type}; supported are F32, F16 and BF16"
            )
        columns = place.shape[-1] if place.shape else 1
        rows = math.prod(place.shape[:-1])
        flat = np.frombuffer(self._maps[place.shard], np.uint8, place.end - place.begin, place.begin)
        return RawTensor(place.type, (rows, columns), flat.reshape(rows, columns * _BYTES[place.type]))

    def close(self) -> None:
        """Lets go of the mapped pages. Views that outlive this stay readable, from the files."""
        for data in self._maps:
            release(data)

    def _shards(self) -> list[str]:
        if (self.path / _SINGLE).is_file():
            return [_SINGLE]
        if not (self.path / _INDEX).is_file():
            hint = " (there are .bin weights, which are not supported)" if any(self.path.glob("*.bin")) else ""
            raise ModelError(f"model folder {self.path} has neither {_SINGLE} nor {_INDEX}{hint}")
        shards = sorted(set(self._index().values()))
        for name in shards:
            if Path(name).name != name:
                raise ModelError(f"{self.path / _INDEX} names a file outside its folder: {name}")
        return shards

    def _index(self) -> dict[str, str]:
        index = read_json(self.path / _INDEX).get("weight_map")
        if not isinstance(index, dict) or not all(isinstance(name, str) for name in index.values()):
            raise ModelError(f"{self.path / _INDEX} has no weight_map")
        return index

    def _check_index(self) -> None:
        if (self.path / _SINGLE).is_file():
            return
        for tensor, shard in self._index().items():
            if tensor not in self._places:
                raise ModelError(f"{self.path / shard}: tensor {tensor}, which {_INDEX} promises, is not there")

    def _open(self, path: Path) -> None:
        data = map_file(path)
        self._maps.append(data)
        length = int.from_bytes(data[:8], "little")
        if len(data) < 8 or length > min(_MAX_HEADER, len(data) - 8):
            raise ModelError(f"{path} is truncated or no safetensors file: header of {length} bytes in {len(data)}")
        try:
            header = json.loads(data[8 : 8 + length])
        except (ValueError, RecursionError) as error:
            raise ModelError(f"{path} is no safetensors file: its header is not JSON ({error})") from error
        if not isinstance(header, dict):
            raise ModelError(f"{path} is no safetensors file: its header is not an object")
        header.pop("__metadata__", None)
        end = 8 + length
        places = [(name, self._place(path, name, entry, 8 + length, len(data))) for name, entry in header.items()]
        for name, place in sorted(places, key=lambda item: item[1].begin):
            if place.begin < end:
                raise ModelError(f"{path}: tensor {name} overlaps its neighbour")
            end = place.end
            if name in self._places:
                raise ModelError(f"{path}: tensor {name} occurs in two files")
            self._places[name] = place

    def _place(self, path: Path, name: str, entry: Any, base: int, size: int) -> _Place:
        try:
            kind, shape, (begin, end) = entry["dtype"], tuple(entry["shape"]), entry["data_offsets"]
            valid = isinstance(kind, str) and all(type(n) is int and n >= 0 for n in (*shape, begin, end))
        except (TypeError, KeyError, ValueError):
            valid = False
        if not valid:
            raise ModelError(f"{path}: tensor {name} has a malformed entry")
        if base + end > size:
            raise ModelError(f"{path} is truncated: tensor {name} ends at byte {base + end}, the file has {size}")
        if begin > end or (kind in _BYTES and end - begin != math.prod(shape) * _BYTES[kind]):
            raise ModelError(f"{path}: tensor {name} of shape {list(shape)} and type {kind} has {end - begin} bytes")
        return _Place(len(self._maps) - 1, kind, shape, base + begin, base + end)
