"""What an answer with tool calls must look like, as a grammar in llguidance's dialect of Lark."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headway.model.answer_format import AnswerFormat

MOST_CALLS = 16  # in one answer that must have some: a small model would go on for ever
_NO_ARGUMENTS = {"type": "object", "properties": {}, "additionalProperties": False}
# Keywords that may say more about properties than `properties` does.
_MORE_PROPERTIES = frozenset({"additionalProperties", "patternProperties", "allOf", "anyOf", "oneOf", "$ref"})
_TEXT = "TEXT: /(.|\\n)*/"


@dataclass(frozen=True, slots=True)
class CallGrammar:
    """The grammar of the answers to one request. `functions`: OpenAI's function objects that may be called, with their
    parameters; `strict`: the names of those whose schema holds in free text too."""

    format: AnswerFormat
    functions: Sequence[Mapping[str, Any]]
    strict: Collection[str]
    parallel: bool

    def required(self, *, in_reasoning: bool, may_reason: bool, or_else: str = "") -> str:
        """One call or several, and nothing else but reasoning before them.

        `in_reasoning`: the prompt has opened it. `may_reason`: the prompt leaves it to the model. `or_else`: a rule
        that the answer may follow instead; without functions it must.
        """
        rules = [f"calls: {self._calls()}", *self._rules()] if self.functions else []
        answer = " | ".join([*(["calls"] if self.functions else []), *([or_else] if or_else else [])])
        return "\n".join([*self._reasoned(in_reasoning, may_reason), f"answer: {answer}", *rules])

    def free(self, *, in_reasoning: bool, may_reason: bool) -> str:
        """Any text, but once a call begins it is one of these, and of a strict function by its schema."""
        style, rules = self.format.calls, self._rules(only_strict=True)
        marked = self.format.thinking is not None and self.format.thinking[1] in self.format.special
        lines = self._reasoned(marked and in_reasoning, marked and may_reason)  # as text, reasoning is free anyway
        if style.bare:  # a brace at the beginning begins a call
            lines += [f"answer: {self._mark(style.opening)}? object | WORDS", "WORDS: /(\\s*[^{\\s](.|\\n)*)?/"]
        else:
            lines += [f"answer: (begin {self._call_after_mark()})* TEXT", *self._until("begin", style.opening)]
        return "\n".join([*dict.fromkeys([*lines, *rules])])  # TEXT may be defined twice

    # Parts of the grammars.

    def _reasoned(self, in_reasoning: bool, may_reason: bool) -> list[str]:
        """`start`: an `answer`, behind what reasoning there is."""
        if self.format.thinking is None or not (in_reasoning or may_reason):
            return ["start: answer"]
        opening, closing = self.format.thinking
        thought = 'thought "\\n"{0,2} answer'
        start = thought if in_reasoning else f"{self._mark(opening)} {thought} | answer"
        return [f"start: {start}", *self._until("thought", closing)]

    def _calls(self) -> str:
        style = self.format.calls
        if style.bare:  # such a model makes one call an answer
            return f"{self._mark(style.opening)}? object"
        one = f"{self._mark(style.opening)} {self._call_after_mark()}"
        if style.name == "mistral" or not self.parallel:
            return one
        gap = '"\\n" ' if style.closing else ""
        return f"{one} ({gap}{one}){{0,{MOST_CALLS - 1}}}"

    def _call_after_mark(self) -> str:
        style = self.format.calls
        if style.name == "hermes":
            return f'"\\n" object "\\n" {self._mark(style.closing)}'
        if style.name == "mistral":
            more = f' (", " object){{0,{MOST_CALLS - 1}}}' if self.parallel else ""
            return f'"[" object{more} "]"'
        return "object"

    def _rules(self, *, only_strict: bool = False) -> list[str]:
        """`object`: a call of any of the functions; by their schemas, or by those of strict ones alone."""
        lines = [f"object: {' | '.join(f'call_{n}' for n in range(len(self.functions)))}"]
        for n, function in enumerate(self.functions):
            if self.format.calls.name == "mistral_named":
                lines.append(f"call_{n}: {_text(function['name'])} {self._mark('[ARGS]')} arguments_{n}")
            else:
                key = "parameters" if self.format.calls.name == "llama" else "arguments"
                head = _text(f'{{"name": "{function["name"]}", "{key}": ')
                lines.append(f'call_{n}: {head} arguments_{n} "}}"')
            held = function["name"] in self.strict or not only_strict
            schema = arguments_schema(function) if held else {"type": "object"}
            lines.append(f"arguments_{n}: %json {json.dumps(schema)}")
        return lines

    def _until(self, rule: str, mark: str) -> list[str]:
        """`rule`: any text up to the first `mark`, and the mark."""
        if mark in self.format.special:
            return [f"{rule}: TEXT {self._mark(mark)}", _TEXT]
        return [f"{rule}[lazy]: TEXT {_text(mark)}", _TEXT]

    def _mark(self, mark: str) -> str:
        index = self.format.special.get(mark)
        return _text(mark) if index is None else f"<[{index}]>"


def arguments_schema(function: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON schema of a function's arguments, which are always an object.

    Of its own parameters alone, unless it says otherwise: a small model would invent others without end, and the
    function would not take them.
    """
    schema = {"type": "object", **(function.get("parameters") or _NO_ARGUMENTS)}
    if "properties" in schema and not _MORE_PROPERTIES & schema.keys():
        schema["additionalProperties"] = False
    return schema


def _text(text: str) -> str:
    return json.dumps(text)
