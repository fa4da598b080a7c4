"""JSON text made wrong: other types, huge and impossible numbers, half characters, keys twice, depth, size."""

import copy
import json
import random
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Raw:
    """Text that is written as it stands, be it JSON or not."""

    text: str


@dataclass(frozen=True)
class Twice:
    """An object in which a key occurs twice."""

    whole: dict[str, Any]
    key: str
    other: Any


NUMBERS = [
    "0", "-0", "-1", "1", "2", "3", "0.5", "1.0", "-1.5", "1e-400", "1e400", "-1e400", "1E5", "127", "129", "65535",
    "2147483647", "2147483648", "4294967296", "9223372036854775807", "9223372036854775808", "18446744073709551616",
    "1" + "0" * 400, "9" * 5000, "1" * 100 + ".5", "3e38", "1e39", "5e-324", "NaN", "Infinity", "-Infinity", "01",
    "+1", "0x10", "1e", "--1",
]  # fmt: skip
TEXTS = [
    '""', '" "', '"x"', r'"\u0000"', r'"\ud800"', r'"\udfff\ud800"', r'"\ud83d"', r'"\ud83d\ude00"', '"\x7f"', '"\n"',
    r'"\x"', '"\u00e9"', '"\ufeff"', '"\u202e"', '"</s>"', '"<s>"', '"{{ 7 * 7 }}"', '"{% for x in range(99999999) %}"',
    '"../../etc/passwd"', '"file:///etc/passwd"', '"' + "x" * 5000 + '"', '"' + "a " * 20_000 + '"', "'x'",
    '"(a+)+$"', '"(?:a{1,1000}){1,1000}"', r'"[[:alpha:]"', r'"\\p{L}{1,9999}"', '"user"', '"assistant"', '"tool"',
    '"json_schema"', '"text"', '"start: /a*/"', '"%json {}"', '"{}"', '"[1, 2"',
]  # fmt: skip
WORDS = ["null", "true", "false", "[]", "{}", "[[]]", "[null]", '{"":null}', '{"a":{}}', "", "undefined", "[1,]", "{,}"]
SCHEMAS = [
    "true", "false", '{"type":"object"}', '{"$ref":"#"}', '{"$ref":"#/$defs/x"}',
    '{"$defs":{"x":{"$ref":"#/$defs/x"}},"$ref":"#/$defs/x"}',
    '{"type":"string","pattern":"(a|b){1,5000}"}', '{"type":"array","minItems":1000000000}', '{"enum":[]}',
    '{"type":"integer","minimum":1e30}', '{"type":"number","multipleOf":0}', '{"type":"string","maxLength":-1}',
    '{"type":["string","nonsense"]}', '{"required":["a","a"],"type":"object"}', '{"properties":5}',
    '{"type":"object","properties":{"":{}}}',
    '{"allOf":[{"type":"string"},{"type":"integer"}]}', '{"$ref":"file:///etc/passwd"}', '{"$ref":"http://localhost/x"}',
    '{"minLength":9007199254740993,"type":"string"}', '{"type":"string","format":"date-time","maxLength":3}',
]  # fmt: skip


def mutated(value: Any, rng: random.Random) -> bytes:
    """`value` as JSON text with one to three things wrong, or not; now and then its bytes are spoiled too."""
    value = copy.deepcopy(value)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        value = _changed(value, rng)
    data = dumped(value).encode("utf-8", "surrogatepass")
    return spoiled(data, rng) if rng.random() < 0.1 else data


def spoiled(data: bytes, rng: random.Random) -> bytes:
    """Bytes cut, flipped, repeated or moved."""
    if not data:
        return data
    at, size = rng.randrange(len(data)), rng.choice((1, 1, 2, 8, 64))
    match rng.randrange(5):
        case 0:
            return data[:at]
        case 1:
            return data[:at] + rng.randbytes(size) + data[at + size :]
        case 2:
            return data[:at] + data[at : at + size] * rng.choice((2, 3, 50)) + data[at + size :]
        case 3:
            return data[:at] + data[at + size :]
    to = rng.randrange(len(data))
    return data[:to] + data[at : at + size] + data[to:]


def dumped(value: Any) -> str:
    """JSON text, without recursion problems: what is deep is Raw."""
    if isinstance(value, Raw):
        return value.text
    if isinstance(value, Twice):
        inner = dumped(value.whole)[1:-1]
        return f"{{{inner}{',' if inner else ''}{json.dumps(value.key)}:{dumped(value.other)}}}"
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(key)}:{dumped(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(dumped, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def _changed(value: Any, rng: random.Random) -> Any:
    """`value` with one place in it changed; a list or an object is changed in place."""
    places = list(_places(value))
    if not places:
        return junk(value, rng)
    whole, key = rng.choice(places)
    old = whole[key]
    match rng.randrange(8):
        case 0:
            del whole[key]
        case 1 if isinstance(whole, dict):
            whole[rng.choice(("zzz", "", "\u0000", "__class__", "\ud800", key.upper(), key + " "))] = old
        case 2 if isinstance(old, list | dict) and old:
            many = rng.choice((2, 20, 300, 3000))
            whole[key] = old * many if isinstance(old, list) else old | {f"k{i}": 1 for i in range(many)}
        case 3 if isinstance(old, dict) and old:
            name = rng.choice(list(old))
            whole[key] = Twice(old, name, junk(old[name], rng))
        case 4:
            other, name = rng.choice(places)
            whole[key] = copy.deepcopy(other[name])
        case _:
            whole[key] = junk(old, rng)
    return value


def _places(value: Any) -> Any:
    todo = [value]
    while todo:
        part = todo.pop()
        for key in part if isinstance(part, dict) else range(len(part)) if isinstance(part, list) else ():
            yield part, key
            todo.append(part[key])


def junk(old: Any, rng: random.Random) -> Any:
    """Something else than `old`, often of its own type."""
    match rng.randrange(9):
        case 0 | 1:
            return Raw(rng.choice(NUMBERS))
        case 2 | 3:
            return Raw(rng.choice(TEXTS))
        case 4:
            return Raw(rng.choice(WORDS))
        case 5:
            return Raw(rng.choice(SCHEMAS))
        case 6:
            depth = rng.choice((3, 60, 130, 199, 201, 1000, 100_000))
            opened, closed = rng.choice((("[", "]"), ('{"a":', "}"), ('{"items":', "}"), ('{"anyOf":[', "]}")))
            text = opened * depth + "1" + closed * depth
            return Raw(json.dumps(text) if rng.random() < 0.3 else text)
        case 7 if isinstance(old, str):
            return rng.choice((old * 2, old * 1000, old[1:], old.upper(), old + "\u0000", "\U0010ffff" + old))
        case 7 if isinstance(old, int | float) and not isinstance(old, bool):
            return rng.choice((-old, old + 1, old * 1000, old * 10**12, old / 3, str(old), [old]))
    return rng.choice(([old], {"a": old}, [old, None], str(old), None))
