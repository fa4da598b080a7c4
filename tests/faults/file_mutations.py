"""Model files made wrong where it matters: counts, lengths, types, shapes, offsets, and what metadata says."""

import json
import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from json_mutations import mutated, spoiled

WHOLE = [
    0,
    1,
    2,
    3,
    7,
    31,
    32,
    33,
    255,
    1 << 16,
    (1 << 31) - 1,
    1 << 31,
    (1 << 32) - 1,
    1 << 32,
    1 << 40,
    (1 << 63) - 1,
]
WHOLE += [1 << 63, (1 << 64) - 1, (1 << 64) - 32]
FLOATS = [0.0, -0.0, 1.0, -1.0, 1e-45, 1e-30, 1e30, 3e38, float("nan"), float("inf"), -float("inf")]
SCALAR_BYTES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
F32, STRING, ARRAY = 6, 8, 9
MOST_ELEMENTS = 4  # of an array that are places of their own


@dataclass(frozen=True)
class Place:
    """A field of a GGUF header; `kind`: u (whole number), f (float) or t (text)."""

    kind: str
    at: int
    size: int


def gguf_places(data: bytes) -> list[Place]:
    """Every field of a sound file's header."""
    places = [Place("u", 4, 4), Place("u", 8, 8), Place("u", 16, 8)]
    tensors, entries = struct.unpack_from("<QQ", data, 8)
    at = 24

    def take(kind: str, size: int) -> int:
        nonlocal at
        places.append(Place(kind, at, size))
        at += size
        return int.from_bytes(data[at - size : at], "little")

    def value(type_: int) -> None:
        if type_ == STRING:
            take("t", take("u", 8))
        else:
            take("f" if type_ == F32 else "u", SCALAR_BYTES[type_])

    for _ in range(entries):
        value(STRING)
        type_ = take("u", 4)
        if type_ != ARRAY:
            value(type_)
            continue
        type_, count = take("u", 4), take("u", 8)
        for index in range(count):
            kept = len(places)
            value(type_)
            if index >= MOST_ELEMENTS:
                del places[kept:]
    for _ in range(tensors):
        value(STRING)
        for size in [8] * take("u", 4):
            take("u", size)
        take("u", 4), take("u", 8)
    return places


def mutated_gguf(data: bytes, places: list[Place], rng: random.Random) -> bytes:
    """`data` with a few of its fields changed, or cut, or spoiled."""
    if rng.random() < 0.15:
        return spoiled(data, rng)
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        place = rng.choice(places)
        field = slice(place.at, place.at + place.size)
        if place.kind == "t":
            text = bytearray(data[field])
            if text:
                text[rng.randrange(len(text))] = rng.choice(b"\xff\x00 .axZ0")
            changed[field] = text
        elif place.kind == "f" and rng.random() < 0.8:
            changed[field] = struct.pack("<f", rng.choice(FLOATS))
        else:
            old = int.from_bytes(data[field], "little")
            other = rng.choice([p for p in places if p.size == place.size])
            near = [old + 1, old - 1, old * 2, old // 2, old ^ (1 << rng.randrange(8 * place.size))]
            near.append(int.from_bytes(data[other.at : other.at + other.size], "little"))  # another's: overlap, a cycle
            new = rng.choice(near if rng.random() < 0.5 else WHOLE) % (1 << 8 * place.size)
            changed[field] = new.to_bytes(place.size, "little")
    return bytes(changed)


def gguf_files(file: Path, at: Path, rng: random.Random) -> Iterator[Path]:
    """Endless mutations of a GGUF file, each written to `at`."""
    data = file.read_bytes()
    places = gguf_places(data)
    while True:
        at.write_bytes(mutated_gguf(data, places, rng))
        yield at


def folders(folder: Path, at: Path, rng: random.Random) -> Iterator[Path]:
    """Endless mutations of a folder with safetensors, each written over the folder `at`, which is a copy of it."""
    names = [path.name for path in folder.iterdir() if path.suffix in (".json", ".safetensors")]
    names += ["model.safetensors", "config.json"]  # which say the most
    while True:
        name = rng.choice(names)
        data = (folder / name).read_bytes()
        if name.endswith(".json"):
            new = mutated(json.loads(data), rng)
        else:
            length = int.from_bytes(data[:8], "little")
            header = data[8 : 8 + length]
            if rng.random() < 0.8:
                header = mutated(json.loads(header), rng)
            stated = len(header) if rng.random() < 0.9 else rng.choice(WHOLE)
            new = stated.to_bytes(8, "little") + header + data[8 + length :]
            new = spoiled(new, rng) if rng.random() < 0.1 else new
        (at / name).write_bytes(new)
        yield at
        (at / name).write_bytes(data)
