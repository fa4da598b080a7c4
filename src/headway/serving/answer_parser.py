"""Takes an answer's text apart: reasoning, content, tool calls. The same parts however the text is cut into pieces.

No text is lost. What turns out to be no call of a known tool is content again; once a call's arguments have begun it
stays one, and what does not belong to them is content. White space between marks belongs to the marks.
"""

import re
from collections.abc import Callable, Collection

from headway.model.answer_format import AnswerFormat
from headway.serving.call_reader import CallReader
from headway.serving.text_events import Arguments, CallStart, Content, Part, Reasoning

# Mistral's newer form: [TOOL_CALLS]name[CALL_ID]id[ARGS]{...}, where the middle may be missing.
_NAMED = re.compile(r"([a-zA-Z0-9_-]{1,64})(\[CALL_ID\][a-zA-Z0-9_-]{0,64})?(\[ARGS\])?\s*")
_NAMED_CHARS = re.compile(r"[a-zA-Z0-9_\[\]\s-]{0,200}")


class AnswerParser:
    """The parts of one answer. `names`: the tools that may be called; none: no calls are looked for."""

    def __init__(
        self, format: AnswerFormat, names: Collection[str], new_id: Callable[[], str], *, single: bool = False
    ) -> None:
        """`single`: the answer ends with its first call (`closed`)."""
        self._format = format
        self._style = format.calls
        self._names = names
        self._new_id = new_id
        self._single = single
        self._step: Callable[[], bool] = self._start
        self._buffer = ""
        self._parts: list[Part] = []
        self._said = False  # there was content
        self._marked = False  # the buffer begins behind a mark
        self._at_start = True  # of the reasoning, whose first white space belongs to the mark
        # The call that is being read.
        self._reader = CallReader(names)
        self._raw = ""  # the text of it and before it, until it is sure to be one
        self._mark = 0  # how much of `_raw` is content if it is none; the rest is looked at again
        self._shown = False  # it is sure to be one
        self._in_list = False
        self._calls = 0
        self._complete = 0
        self.closed = False

    @property
    def called(self) -> bool:
        """There were calls, and all are whole."""
        return 0 < self._calls == self._complete

    @property
    def in_reasoning(self) -> bool:
        return self._step == self._reason

    @property
    def undecided(self) -> bool:
        """Whether the answer begins with reasoning is not known yet."""
        return self._step == self._start

    def begin_in_reasoning(self) -> None:
        """The prompt has opened the reasoning."""
        self._step = self._reason

    def push(self, text: str) -> list[Part]:
        if self.closed:
            return []
        self._buffer += text
        self._run()
        return self._take()

    def finish(self) -> list[Part]:
        """The rest: nothing more comes."""
        while self._step == self._call and not self._reader.begun:
            self._give_back()
            self._run()
        rest, self._buffer = self._buffer, ""
        if self._step == self._reason:
            self._add(Reasoning(rest))
        elif not (self._marked and rest.isspace()):
            self._say(rest)
        return self._take()

    def _run(self) -> None:
        while not self.closed and self._step():
            pass

    def _take(self) -> list[Part]:
        parts, self._parts = self._parts, []
        return parts

    def _add(self, part: Content | Reasoning | Arguments) -> None:
        if not part.text:
            return
        last = self._parts[-1] if self._parts else None
        if isinstance(last, Content | Reasoning) and type(last) is type(part):
            self._parts[-1] = type(last)(last.text + part.text)
        elif isinstance(last, Arguments) and isinstance(part, Arguments) and last.index == part.index:
            self._parts[-1] = Arguments(last.index, last.text + part.text)
        else:
            self._parts.append(part)

    def _say(self, text: str) -> None:
        if self._marked and not self._said:
            text = text.lstrip()
        if text:
            self._said, self._marked = True, False
            self._add(Content(text))

    # Steps: each takes what it can from the buffer; False when it needs more text.

    def _start(self) -> bool:
        if self._format.thinking is not None:
            mark, rest = self._format.thinking[0], self._buffer.lstrip()
            if rest.startswith(mark):
                self._buffer = rest[len(mark) :]
                self._step = self._reason
                return True
            if mark.startswith(rest):
                return False
        self._step = self._content
        return True

    def _reason(self) -> bool:
        assert self._format.thinking is not None
        if self._at_start:
            self._buffer = self._buffer.lstrip()
            self._at_start = not self._buffer
        mark = self._format.thinking[1]
        text, found, rest = self._buffer.partition(mark)
        if found:
            self._add(Reasoning(text.rstrip()))
            self._buffer, self._marked = rest, True
            self._step = self._content
            return True
        held = _held(self._buffer, mark)
        self._add(Reasoning(self._buffer[: len(self._buffer) - held]))
        self._buffer = self._buffer[len(self._buffer) - held :]
        return False

    def _content(self) -> bool:
        if not self._names:
            text, self._buffer = self._buffer, ""
            self._say(text)
            return False
        if self._style.bare and not self._said and not self._calls:
            rest = self._buffer.lstrip()
            if not rest:
                return False
            if rest[0] == "{":
                space = len(self._buffer) - len(rest)
                return self._begin_call(space, mark=space + 1)
        text, found, _ = self._buffer.partition(self._style.opening)
        if found:
            spoken = text.rstrip()
            self._say(spoken)
            self._buffer = self._buffer[len(spoken) :]
            mark = len(text) - len(spoken) + len(found)
            return self._begin_mistral(mark) if self._style.opening == "[TOOL_CALLS]" else self._begin_call(mark)
        held = _held(self._buffer, self._style.opening)
        self._say(self._buffer[: len(self._buffer) - held])
        self._buffer = self._buffer[len(self._buffer) - held :]
        return False

    def _begin_call(self, outside: int, *, mark: int | None = None, name: str | None = None) -> bool:
        """The call's object is behind the first `outside` characters of the buffer."""
        self._raw, self._buffer = self._buffer[:outside], self._buffer[outside:]
        self._mark = outside if mark is None else mark
        self._shown = False
        self._reader = CallReader(self._names, name)
        self._step = self._call
        return True

    def _begin_mistral(self, mark: int) -> bool:
        """Behind [TOOL_CALLS]: a list of calls, a call, or a name and the arguments."""
        self._in_list = False
        rest = self._buffer[mark:].lstrip()
        outside = len(self._buffer) - len(rest)
        if rest[:1] == "[":
            self._in_list = True
            return self._begin_call(outside + 1, mark=mark)
        if rest[:1] == "{":
            return self._begin_call(outside, mark=mark)
        head, brace, _ = rest.partition("{")
        named = _NAMED.fullmatch(head) if brace else None
        if named and named[1] in self._names:
            return self._begin_call(outside + len(head), mark=mark, name=named[1])
        if not brace and _NAMED_CHARS.fullmatch(head):
            return False
        self._raw, self._buffer = self._buffer[:mark], self._buffer[mark:]
        self._mark = mark
        self._give_back()
        return True

    def _give_back(self) -> None:
        """What was taken for a call is none."""
        text = self._raw + self._buffer
        self._buffer = text[self._mark :]
        self._say(text[: self._mark])
        self._step = self._content

    def _call(self) -> bool:
        reader, taken, good = self._reader, 0, True
        for char in self._buffer:
            good = reader.push(char)
            if not good:
                break
            taken += 1
            if reader.done:
                break
        if not reader.begun:
            self._raw += self._buffer[:taken]
        self._buffer = self._buffer[taken:]
        if reader.begun:
            self._show(reader)
        elif not good:
            self._give_back()
            return True
        if reader.done:
            self._complete += 1
            self.closed = self._single
            self._step = self._after_call
        elif not good:
            self._step = self._content
        return reader.done or not good

    def _show(self, reader: CallReader) -> None:
        if not self._shown:
            self._shown = self._marked = True
            assert reader.name is not None
            self._parts.append(CallStart(self._calls, self._new_id(), reader.name))
            self._calls += 1
        self._add(Arguments(self._calls - 1, reader.take()))

    def _after_call(self) -> bool:
        """What may stand behind a call: its closing mark, or what parts it from the next."""
        rest = self._buffer.lstrip()
        space = len(self._buffer) - len(rest)
        if self._style.closing:
            if rest.startswith(self._style.closing):
                self._buffer = rest[len(self._style.closing) :]
            elif self._style.closing.startswith(rest):
                return False
        elif self._style.bare or self._in_list:
            if not rest:
                return False
            if rest[0] == (";" if self._style.bare else ","):
                return self._begin_next(space + 1)
            if self._style.bare and rest[0] == "{":
                return self._begin_next(space)
            if self._in_list and rest[0] == "]":
                self._buffer = rest[1:]
        self._step = self._content
        return True

    def _begin_next(self, outside: int) -> bool:
        """Another call follows at once, if a brace follows."""
        rest = self._buffer[outside:].lstrip()
        if not rest:
            return False
        if rest[0] != "{":
            self._step = self._content
            return True
        return self._begin_call(len(self._buffer) - len(rest), mark=len(self._buffer) - len(rest) + 1)


def _held(text: str, mark: str) -> int:
    """Characters at the end that may begin the mark, and the white space before it."""
    partial = next((n for n in range(min(len(text), len(mark) - 1), 0, -1) if text.endswith(mark[:n])), 0)
    return len(text) - len(text[: len(text) - partial].rstrip())
