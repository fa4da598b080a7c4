"""GGUF files (ggml's container, versions 2 and 3), read from a memory map.

The `gguf` package's reader makes numpy arrays of every token: 2.6 s and 167 MB for the default model's 49k words.
Both server processes open the file at start, so this one keeps an offset per entry and decodes what is asked for.
"""

import mmap
import struct
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from headway.core.errors import ModelError
from headway.model.mapped import map_file, release
from headway.model.spec import TENSOR_TYPES, RawTensor

# id -> name, values per block, bytes per block; ids and sizes from ggml.h.
_TYPES = {
    0: ("F32", 1, 4),
    1: ("F16", 1, 2),
    2: ("Q4_0", 32, 18),
    3: ("Q4_1", 32, 20),
    6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24),
    8: ("Q8_0", 32, 34),
    12: ("Q4_K", 256, 144),
    13: ("Q5_K", 256, 176),
    14: ("Q6_K", 256, 210),
    30: ("BF16", 1, 2),
    39: ("MXFP4", 32, 17),
}
# Types that exist but no runner takes, for the error message alone.
_REFUSED = {
    9: "Q8_1", 10: "Q2_K", 11: "Q3_K", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S",
    20: "IQ4_NL", 21: "IQ3_S", 22: "IQ2_S", 23: "IQ4_XS", 24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64",
    29: "IQ1_M", 34: "TQ1_0", 35: "TQ2_0",
}  # fmt: skip

# id -> numpy code of a scalar metadata value.
_SCALARS = dict(enumerate(["<u1", "<i1", "<u2", "<i2", "<u4", "<i4", "<f4", "?"])) | {10: "<u8", 11: "<i8", 12: "<f8"}
_STRING, _ARRAY = 8, 9

_LEAST_ENTRY = 8 + 4 + 1  # bytes of the shortest metadata entry: key length, type, value
_LEAST_TENSOR = 8 + 4 + 8 + 4 + 8  # of the shortest tensor entry: name length, dimensions, one of them, type, offset
_MAX_DIMS = 4  # GGML_MAX_DIMS


@dataclass(frozen=True, slots=True)
class _Value:
    """Where a metadata value lies. `count` is None for a single value."""

    type: int
    offset: int
    count: int | None


@dataclass(frozen=True, slots=True)
class _Place:
    """A tensor's type, shape (rows, columns) and absolute bytes [begin, end)."""

    type: str
    shape: tuple[int, int]
    begin: int
    end: int


class _Cursor:
    """Reads little-endian fields off the map; every step is checked against the file's end."""

    def __init__(self, data: mmap.mmap, fail: Callable[[str], ModelError]) -> None:
        self.data = data
        self.at = 0
        self.fail = fail

    def take(self, size: int, what: str) -> int:
        """Steps over `size` bytes and returns where they begin."""
        begin = self.at
        if size > len(self.data) - begin:
            raise self.fail(f"truncated: {what} at byte {begin} needs {size} bytes, the file has {len(self.data)}")
        self.at = begin + size
        return begin

    def u32(self, what: str) -> int:
        return int(struct.unpack_from("<I", self.data, self.take(4, what))[0])

    def u64(self, what: str) -> int:
        return int(struct.unpack_from("<Q", self.data, self.take(8, what))[0])

    def text(self, what: str) -> str:
        length = self.u64(what)
        begin = self.take(length, what)
        try:
            return self.data[begin : begin + length].decode()
        except UnicodeDecodeError:
            raise self.fail(f"{what} at byte {begin} is not UTF-8") from None

    def skip_texts(self, count: int, what: str) -> None:
        """Steps over `count` strings; a tight loop, for a vocabulary has hundreds of thousands."""
        at, data, length_at = self.at, self.data, struct.Struct("<Q").unpack_from
        try:
            for _ in range(count):
                at += 8 + length_at(data, at)[0]
        except (struct.error, OverflowError):
            at = len(data) + 1
        if at > len(data):
            raise self.fail(f"truncated: {what} runs past the file's {len(data)} bytes")
        self.at = at

    def texts(self, count: int, what: str) -> list[str]:
        """The next `count` strings."""
        begin = self.at
        self.skip_texts(count, what)
        data, at, length_at = self.data[begin : self.at], 0, struct.Struct("<Q").unpack_from
        found = []
        try:
            for _ in range(count):
                end = at + 8 + length_at(data, at)[0]
                found.append(data[at + 8 : end].decode())
                at = end
        except UnicodeDecodeError:
            raise self.fail(f"{what} at byte {begin + at} is not UTF-8") from None
        return found


class _Metadata(Mapping[str, Any]):
    """GGUF key-values, decoded at first access: strings as str, arrays as list."""

    def __init__(self, data: mmap.mmap, values: dict[str, _Value], fail: Callable[[str], ModelError]) -> None:
        self._data, self._values, self._fail = data, values, fail
        self._decoded: dict[str, Any] = {}

    def forget(self) -> None:
        """Frees what was decoded; a vocabulary takes megabytes."""
        self._decoded.clear()

    def __getitem__(self, key: str) -> Any:
        if key not in self._decoded:
            self._decoded[key] = self._decode(key, self._values[key])
        return self._decoded[key]

    def _decode(self, key: str, value: _Value) -> Any:
        cursor = _Cursor(self._data, self._fail)
        cursor.at = value.offset
        if value.type == _STRING:
            return cursor.text(key) if value.count is None else cursor.texts(value.count, key)
        count = 1 if value.count is None else value.count
        numbers = np.frombuffer(self._data, dtype=_SCALARS[value.type], count=count, offset=value.offset).tolist()
        return numbers[0] if value.count is None else numbers

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


class GgufCheckpoint:
    """An open GGUF file. Raises ModelError, naming the file, for whatever does not fit the format or its own size."""

    layout: Literal["gguf", "hf"] = "gguf"

    def __init__(self, path: Path) -> None:
        self.path = path
        self._data = map_file(path)
        try:
            self._read()
        except BaseException:
            release(self._data)
            raise

    @property
    def architecture(self) -> str:
        return str(self.metadata["general.architecture"]).lower()

    @property
    def metadata(self) -> Mapping[str, Any]:
        return self._metadata

    def names(self) -> Collection[str]:
        """All tensors' names."""
        return self._places.keys()

    def has(self, name: str) -> bool:
        return name in self._places

    def tensor(self, name: str) -> RawTensor:
        """A view of the mapped file; more than two dimensions are flattened into rows."""
        place = self._places.get(name)
        if place is None:
            raise self._fail(f"tensor {name} is missing")
        flat: NDArray[np.uint8] = np.frombuffer(self._data, np.uint8, place.end - place.begin, place.begin)
        return RawTensor(place.type, place.shape, flat.reshape(place.shape[0], -1))

    def close(self) -> None:
        """Lets go of the mapped pages and the metadata. Tensor views that outlive this stay readable, from the file."""
        self._metadata.forget()
        release(self._data)

    def _fail(self, problem: str) -> ModelError:
        return ModelError(f"GGUF file {self.path}: {problem}")

    def _read(self) -> None:
        cursor = _Cursor(self._data, self._fail)
        magic = cursor.take(4, "the magic")
        if self._data[magic : magic + 4] != b"GGUF":
            raise self._fail(f"not a GGUF file (it begins with {self._data[:4]!r})")
        version = cursor.u32("the version")
        if version not in (2, 3):
            note = ", a big-endian file" if version & 0xFFFF == 0 else ""
            raise self._fail(f"version {version} is not supported (2 and 3 are{note})")
        tensors, entries = cursor.u64("the tensor count"), cursor.u64("the metadata count")
        room = len(self._data) - cursor.at
        if entries * _LEAST_ENTRY + tensors * _LEAST_TENSOR > room:
            raise self._fail(f"{entries} metadata entries and {tensors} tensors do not fit {room} bytes: truncated?")
        self._metadata = _Metadata(self._data, self._read_entries(cursor, entries), self._fail)
        if not isinstance(self._metadata.get("general.architecture"), str):
            raise self._fail("general.architecture is missing")
        self._places = self._read_places(cursor, tensors)

    def _read_entries(self, cursor: _Cursor, count: int) -> dict[str, _Value]:
        values: dict[str, _Value] = {}
        for _ in range(count):
            key = cursor.text("a metadata key")
            if key in values:
                raise self._fail(f"metadata key {key} occurs twice")
            type_, length = cursor.u32(key), None
            if type_ == _ARRAY:
                type_, length = cursor.u32(key), cursor.u64(key)
            values[key] = _Value(type_, cursor.at, length)
            if type_ == _STRING:
                cursor.skip_texts(1 if length is None else length, key)
            elif type_ in _SCALARS:
                cursor.take(np.dtype(_SCALARS[type_]).itemsize * (1 if length is None else length), key)
            else:
                raise self._fail(f"metadata key {key} has the unknown value type {type_}")
        return values

    def _read_places(self, cursor: _Cursor, count: int) -> dict[str, _Place]:
        relative: dict[str, _Place] = {}
        for _ in range(count):
            name = cursor.text("a tensor name")
            if name in relative:
                raise self._fail(f"tensor {name} occurs twice")
            relative[name] = self._read_place(cursor, name)
        alignment = self._metadata.get("general.alignment", 32)
        if not isinstance(alignment, int) or alignment <= 0 or alignment & (alignment - 1):
            raise self._fail(f"general.alignment {alignment} is not a power of two")
        base = -(-cursor.at // alignment) * alignment
        places, end = {}, base
        for name, place in sorted(relative.items(), key=lambda item: item[1].begin):
            places[name] = _Place(place.type, place.shape, base + place.begin, base + place.end)
            if place.begin % alignment or places[name].begin < end:
                raise self._fail(f"tensor {name} at offset {place.begin} overlaps its neighbour or is not aligned")
            end = places[name].end
            if end > len(self._data):
                raise self._fail(f"truncated: tensor {name} ends at byte {end}, the file has {len(self._data)}")
        return places

    def _read_place(self, cursor: _Cursor, name: str) -> _Place:
        dims = cursor.u32(name)
        if not 1 <= dims <= _MAX_DIMS:
            raise self._fail(f"tensor {name} has {dims} dimensions")
        columns, *others = [cursor.u64(name) for _ in range(dims)]
        type_, begin = cursor.u32(name), cursor.u64(name)
        if type_ not in _TYPES:
            called = _REFUSED.get(type_, f"number {type_}")
            raise self._fail(f"tensor {name} has the type {called}; supported are {', '.join(TENSOR_TYPES)}")
        kind, block, size = _TYPES[type_]
        rows = 1
        for other in others:
            rows *= other
        if columns == 0 or rows == 0 or columns % block:
            raise self._fail(f"tensor {name} of type {kind} cannot have the shape {[columns, *others]}")
        return _Place(kind, (rows, columns), begin, begin + rows * (columns // block) * size)
