"""Checks JSON as it arrives, character by character: the first that cannot belong to it is noticed at once."""

import re

_SPACE = " \t\r\n"
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_NUMBER_CHARS = frozenset("-+.eE0123456789")
_LITERALS = ("true", "false", "null")
_OPENED_BY = {"}": "{", "]": "["}


class JsonScanner:
    """One JSON object. `depth` counts the open objects and lists; `done` once the first has closed."""

    def __init__(self) -> None:
        self.done = False
        self.string = ""  # the last string that has ended, quotes and escapes as written
        self.ended_key = False  # the last character ended a key
        self.ended_string = False  # ... or a string that is a value
        self._open: list[str] = []
        self._expect = self._first
        self._scalar = ""  # of a number or literal that is being read
        self._chars: list[str] = []  # of a string that is being read
        self._is_key = False
        self._hex = 0

    @property
    def depth(self) -> int:
        return len(self._open)

    def push(self, char: str) -> bool:
        """False if `char` cannot come here; then, and once `done`, the scanner is spent."""
        self.ended_key = self.ended_string = False
        return self._expect(char)

    def _first(self, char: str) -> bool:
        return char in _SPACE or (char == "{" and self._enter(char))

    def _enter(self, char: str) -> bool:
        self._open.append(char)
        self._expect = self._key_or_end if char == "{" else self._value_or_end
        return True

    def _leave(self, char: str) -> bool:
        if self._open[-1] != _OPENED_BY[char]:
            return False
        self._open.pop()
        self.done = not self._open
        self._expect = self._comma_or_end
        return True

    def _key_or_end(self, char: str) -> bool:
        return self._leave(char) if char == "}" else self._key(char)

    def _key(self, char: str) -> bool:
        return char in _SPACE or (char == '"' and self._begin_string(is_key=True))

    def _value_or_end(self, char: str) -> bool:
        return self._leave(char) if char == "]" else self._value(char)

    def _value(self, char: str) -> bool:
        if char in _SPACE:
            return True
        if char == '"':
            return self._begin_string(is_key=False)
        if char in "{[":
            return self._enter(char)
        self._scalar = ""
        self._expect = self._in_scalar
        return char in "-0123456789tfn" and self._in_scalar(char)

    def _begin_string(self, is_key: bool) -> bool:
        self._is_key = is_key
        self._chars = ['"']
        self._expect = self._in_string
        return True

    def _in_string(self, char: str) -> bool:
        self._chars.append(char)
        if char == '"':
            self.string = "".join(self._chars)
            self.ended_key, self.ended_string = self._is_key, not self._is_key
            self._expect = self._colon if self._is_key else self._comma_or_end
        elif char == "\\":
            self._expect = self._escape
        return char >= " "

    def _escape(self, char: str) -> bool:
        self._chars.append(char)
        self._hex = 4
        self._expect = self._in_hex if char == "u" else self._in_string
        return char in '"\\/bfnrtu'

    def _in_hex(self, char: str) -> bool:
        self._chars.append(char)
        self._hex -= 1
        if not self._hex:
            self._expect = self._in_string
        return char in "0123456789abcdefABCDEF"

    def _in_scalar(self, char: str) -> bool:
        """Inside a number, true, false or null; only the character behind it shows where a number ends."""
        longer = self._scalar + char
        number = (longer[0] in "-0123456789") and char in _NUMBER_CHARS
        if number or any(literal.startswith(longer) for literal in _LITERALS):
            self._scalar = longer
            return True
        if self._scalar not in _LITERALS and not _NUMBER.fullmatch(self._scalar):
            return False
        self._expect = self._comma_or_end
        return self._comma_or_end(char)

    def _colon(self, char: str) -> bool:
        if char == ":":
            self._expect = self._value
        return char == ":" or char in _SPACE

    def _comma_or_end(self, char: str) -> bool:
        if char == ",":
            self._expect = self._key if self._open[-1] == "{" else self._value
            return True
        return self._leave(char) if char in _OPENED_BY else char in _SPACE
