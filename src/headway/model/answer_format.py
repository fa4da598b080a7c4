"""How a model writes tool calls and reasoning in its answers, found once from what its chat template does."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from headway.core.errors import InvalidRequest
from headway.model.chat_template import ChatTemplate
from headway.model.tokenizer import Tokenizer

_NAME = "headway_probes_this"
_TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": _NAME,
        "description": "d",
        "parameters": {"type": "object", "properties": {"x": {"type": "integer", "description": "d"}}},
    },
}
_CALL = {"id": "abcdefghi", "type": "function", "function": {"name": _NAME, "arguments": '{"x": 1}'}}
_USER: dict[str, Any] = {"role": "user", "content": "hi"}
_HISTORY: list[dict[str, Any]] = [
    _USER,
    {"role": "assistant", "content": "", "tool_calls": [_CALL]},
    {"role": "tool", "content": "r", "tool_call_id": "abcdefghi", "name": _NAME},
]
_THINKING = (("<think>", "</think>"), ("[THINK]", "[/THINK]"))


@dataclass(frozen=True, slots=True)
class CallStyle:
    """One way of writing a call."""

    name: Literal["hermes", "llama", "mistral", "mistral_named"]
    opening: str  # stands before a call, or before all of them
    closing: str  # stands after a call; "": nothing does
    pattern: str  # of a call in a rendered conversation, NAME being the function's
    bare: bool = False  # an answer that begins with a call's object is one, without the opening


HERMES = CallStyle("hermes", "<tool_call>", "</tool_call>", r'<tool_call>\s*\{[^}]*"NAME"')
STYLES = (
    HERMES,
    CallStyle("mistral_named", "[TOOL_CALLS]", "", r"\[TOOL_CALLS\]NAME"),
    CallStyle("mistral", "[TOOL_CALLS]", "", r'\[TOOL_CALLS\]\s*\[\{[^}]*"NAME"'),
    CallStyle("llama", "<|python_tag|>", "", r'\{"name": "NAME", "parameters": ', bare=True),
)


@dataclass(frozen=True, slots=True)
class AnswerFormat:
    """What a model's answers are made of besides plain text."""

    calls: CallStyle
    describes_tools: bool  # the template shows tools; else they are described in a system message, Hermes style
    thinking: tuple[str, str] | None  # what stands before and after reasoning
    special: Mapping[str, int]  # ids of those markers that are special tokens, whose text is not shown otherwise

    @property
    def short_ids(self) -> bool:
        """Mistral's templates take ids of nine letters and digits only."""
        return self.calls.opening == "[TOOL_CALLS]"

    def opens_reasoning(self, prompt_end: str) -> bool:
        """Whether a prompt that ends so has begun the reasoning."""
        return self.thinking is not None and prompt_end.rstrip().endswith(self.thinking[0])

    def may_reason(self, prompt_end: str) -> bool:
        """Whether the answer to such a prompt may begin with reasoning: not if the prompt has ended it."""
        return self.thinking is not None and not prompt_end.rstrip().endswith(self.thinking[1])


def answer_format_of(template: ChatTemplate, tokenizer: Tokenizer) -> AnswerFormat:
    """Rendered probes decide, not the model's name: does the template show a tool, and how does it write a call?"""
    style = _style_of(template)
    thinking = next((pair for pair in _THINKING if _thinks(pair, template, tokenizer)), None)
    markers = ((style or HERMES).opening, (style or HERMES).closing, *(thinking or ()), "[ARGS]", "[CALL_ID]")
    special = {marker: index for marker in markers if (index := tokenizer.special_id(marker)) is not None}
    return AnswerFormat(style or HERMES, style is not None, thinking, special)


def _style_of(template: ChatTemplate) -> CallStyle | None:
    """None if tools are not shown, or calls are written in a way that Headway does not know."""
    if _NAME not in _rendered(template, [_USER], [_TOOL]):
        return None
    history = _rendered(template, _HISTORY, [_TOOL]).split("hi", 1)[-1]
    return next((style for style in STYLES if re.search(style.pattern.replace("NAME", _NAME), history)), None)


def _rendered(template: ChatTemplate, messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> str:
    try:
        return template.render(messages, tools=tools)
    except InvalidRequest:  # what it cannot render it does not show
        return ""


def _thinks(pair: tuple[str, str], template: ChatTemplate, tokenizer: Tokenizer) -> bool:
    return pair[1] in template.text or all(tokenizer.id_of(marker) is not None for marker in pair)
