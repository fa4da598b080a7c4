"""Reads one tool call as a model writes it: {"name": ..., "arguments": {...}}, or the arguments alone."""

import json
from collections.abc import Collection

from headway.serving.json_scanner import JsonScanner

_ARGUMENTS = ("arguments", "parameters")


class CallReader:
    """Takes characters until `done`. The call is `begun`, for good, once its name is known to be a tool's and its
    arguments have begun; until then it may turn out to be no call at all."""

    def __init__(self, names: Collection[str], name: str | None = None) -> None:
        """`name`: it stood before, and the object is that of the arguments."""
        self.name = name
        self.done = False
        self._names = names
        self._bare = name is not None
        self._scanner = JsonScanner()
        self._key = ""
        self._in_arguments = False
        self._says_arguments = False  # there is such a key
        self._has_arguments = False
        self._new: list[str] = []  # of the arguments, not yet taken

    @property
    def begun(self) -> bool:
        return self.name is not None and self._has_arguments

    def take(self) -> str:
        """The next piece of the arguments of a call that is `begun`."""
        new, self._new = self._new, []
        return "".join(new)

    def push(self, char: str) -> bool:
        """False if `char` cannot belong to a call; it is not taken."""
        before = self._scanner.depth
        if not self._scanner.push(char):
            return False
        after = self._scanner.depth
        if self._bare:
            return self._push_arguments(char, before, after, outside=0)
        if self._in_arguments:
            return self._push_arguments(char, before, after, outside=1)
        return self._push_call(char, before, after)

    def _push_arguments(self, char: str, before: int, after: int, outside: int) -> bool:
        if before > outside or after > outside:  # not the space before
            self._has_arguments = True
            self._new.append(char)
        self._in_arguments = after > outside
        self.done = self._scanner.done
        return True

    def _push_call(self, char: str, before: int, after: int) -> bool:
        scanner = self._scanner
        if scanner.ended_key and after == 1:
            self._key = str(json.loads(scanner.string))
            again = self._key in _ARGUMENTS and self._says_arguments
            self._says_arguments |= self._key in _ARGUMENTS
            return not again and not (self._key == "name" and self.name is not None)
        if scanner.ended_string and after == 1:
            return self._take_string(str(json.loads(scanner.string)))
        if (before, after) == (1, 2) and self._key in _ARGUMENTS:
            if char != "{":
                return False
            self._new.append(char)
            self._in_arguments = self._has_arguments = True
            return True
        if scanner.done:
            return self._end()
        return True

    def _take_string(self, value: str) -> bool:
        """A member of the call that is a string."""
        if self._key == "name":
            self.name = value
            return value in self._names
        return self._key not in _ARGUMENTS

    def _end(self) -> bool:
        if self.name is None or self._says_arguments != self._has_arguments:
            return False
        if not self._has_arguments:  # models leave them out where there are none
            self._has_arguments = True
            self._new = ["{}"]
        self.done = True
        return True
