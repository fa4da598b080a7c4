"""Typed reading of a checkpoint's metadata."""

import reprlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headway.core.errors import ModelError

MOST = 2**31 - 1  # of a whole number: what the native core's own hold


class Fields:
    """Metadata whose missing, ill-typed or senseless entries are a ModelError naming the file and the key.

    An entry that is null counts as missing. Without a default, a missing entry is an error.
    """

    def __init__(self, path: Path, values: Mapping[str, Any], prefix: str = "") -> None:
        self._path, self._values, self._prefix = path, values, prefix

    def __contains__(self, key: str) -> bool:
        return self._values.get(self._prefix + key) is not None

    def states(self, key: str) -> bool:
        """Whether the file has the key at all, be it null."""
        return self._prefix + key in self._values

    def integer(self, key: str, default: int | None = None) -> int:
        """A whole number from 0 to MOST."""
        value = self._read(key, default)
        if type(value) is not int or not 0 <= value <= MOST:
            raise self.fail(f"{key} must be a whole number of at most {MOST}, not {_shown(value)}")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        """A finite number."""
        value = self._read(key, default)
        if not _is_finite(value):
            raise self.fail(f"{key} must be a number, not {_shown(value)}")
        return float(value)

    def flag(self, key: str, default: bool) -> bool:
        value = self._read(key, default)
        if type(value) is not bool:
            raise self.fail(f"{key} must be true or false, not {_shown(value)}")
        return value

    def text(self, key: str, default: str | None = None) -> str:
        value = self._read(key, default)
        if not isinstance(value, str):
            raise self.fail(f"{key} must be a string, not {_shown(value)}")
        return value

    def texts(self, key: str) -> list[str]:
        value = self._read(key, None)
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self.fail(f"{key} must be a list of strings")
        return value

    def numbers(self, key: str) -> list[float]:
        """A list of finite numbers."""
        value = self._read(key, None)
        if not isinstance(value, list) or not all(map(_is_finite, value)):
            raise self.fail(f"{key} must be a list of numbers")
        return [float(n) for n in value]

    def section(self, key: str) -> "Fields":
        """The object under `key`; empty if it is missing."""
        value = self._read(key, {})
        if not isinstance(value, Mapping):
            raise self.fail(f"{key} must be an object, not {_shown(value)}")
        return Fields(self._path, value)

    def fail(self, problem: str) -> ModelError:
        return ModelError(f"model {self._path}: {self._prefix}{problem}")

    def _read(self, key: str, default: Any) -> Any:
        value = self._values.get(self._prefix + key)
        value = default if value is None else value
        if value is None:
            raise self.fail(f"{key} is missing")
        return value


def _is_finite(value: Any) -> bool:
    return type(value) in (int, float) and -sys.float_info.max <= value <= sys.float_info.max


def _shown(value: Any) -> str:
    """A few words of it: files can hold anything, at any length and depth."""
    return reprlib.repr(value)[:100]
