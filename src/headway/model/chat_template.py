"""Chat templates: Jinja2 in a sandbox, with the names and filters transformers gives them."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import meta, nodes
from jinja2.exceptions import TemplateError
from jinja2.ext import Extension, LoopControlExtension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from headway.core.errors import InvalidRequest, ModelError

Message = Mapping[str, Any]

_GIVEN = {"messages", "tools", "add_generation_prompt"}
_PROBE = "headway probes this template"


class _Generation(Extension):
    """`{% generation %}` marks assistant text for training; here it is only a block."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True)).set_lineno(line)


class _Raised(TemplateError):
    """The template itself refuses, by calling `raise_exception`."""


class ChatTemplate:
    """A model's template, compiled. `text` None: the model has none and renders nothing."""

    def __init__(self, text: str | None, special_tokens: Mapping[str, str]) -> None:
        self._special_tokens = special_tokens
        self.text = text or ""
        environment = _environment()
        try:
            self._template = None if text is None else environment.from_string(text)
            # What a client may set by chat_template_kwargs.
            self.variables = _variables(environment.parse(self.text)) - _GIVEN - special_tokens.keys()
        except (TemplateError, ValueError, RecursionError) as error:  # half a character, blocks too deep
            raise ModelError(f"the model's chat template does not compile: {error}") from error
        self._takes_parts = self._template is not None and not self._shows(_PROBE) and self._shows(_parts(_PROBE))

    @property
    def known(self) -> bool:
        """Whether the model has one."""
        return self._template is not None

    def render(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        variables: Mapping[str, Any] | None = None,
    ) -> str:
        """The prompt's text. InvalidRequest for whatever the template does not take, with the template's own message.

        `messages` and `tools` as OpenAI has them. `variables`: the client's chat_template_kwargs.
        """
        if self._template is None:
            raise InvalidRequest("this model has no chat template; use /v1/completions", param="messages")
        for name in variables or ():
            if name in _GIVEN:
                raise InvalidRequest(f"{', '.join(sorted(_GIVEN))} cannot be set here", param="chat_template_kwargs")
            if name not in self.variables:
                known = ", ".join(sorted(self.variables)) or "none"
                raise InvalidRequest(
                    f"the model's chat template has no variable {name[:100]!r} (it has {known})",
                    param="chat_template_kwargs",
                )
        prepared = [self._prepare(message) for message in messages]
        try:
            return self._render(prepared, tools, add_generation_prompt, variables or {})
        except _Raised as error:
            raise InvalidRequest(f"the model's chat template refuses: {error.message}", param="messages") from error
        except Exception as error:  # a template is a program and fails in any way, mostly TypeError
            raise InvalidRequest(
                f"the model's chat template cannot render these messages: {error}", param="messages"
            ) from error

    def _render(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]] | None,
        add_generation_prompt: bool,
        variables: Mapping[str, Any],
    ) -> str:
        assert self._template is not None
        return self._template.render(
            {
                **self._special_tokens,
                **variables,
                "messages": messages,
                "tools": tools,
                "add_generation_prompt": add_generation_prompt,
            }
        )

    def _prepare(self, message: Message) -> dict[str, Any]:
        """A message as the template wants it: content a string (or parts), tool arguments an object."""
        prepared = dict(message)
        content = message.get("content")
        if isinstance(content, list):
            content = "\n".join(_text_of(part) for part in content)  # as vLLM and llama.cpp join them
        if content is None:
            content = ""  # most templates add strings to it
        prepared["content"] = _parts(content) if self._takes_parts else content
        if message.get("tool_calls"):
            prepared["tool_calls"] = [_with_parsed_arguments(call) for call in message["tool_calls"]]
        return prepared

    def _shows(self, content: Any) -> bool:
        """Whether a user's message with this content comes out as its text."""
        try:
            shown = self._render([{"role": "user", "content": content}], None, True, {})
        except Exception:  # what it cannot render it does not show
            return False
        return _PROBE in shown and "'text'" not in shown


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, LoopControlExtension]
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment


def _variables(template: nodes.Template) -> frozenset[str]:
    """Names that a template reads and does not set itself, unless it asks first whether they are defined."""
    names = {*template.find_all(nodes.Name)}
    is_set = {name.name for name in names if name.ctx == "store"}
    asked = {
        test.node.name
        for test in template.find_all(nodes.Test)
        if test.name == "defined" and isinstance(test.node, nodes.Name)
    }
    return frozenset(meta.find_undeclared_variables(template) - (is_set - asked))


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # Jinja's own escapes HTML, and models were not trained on that.
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise_exception(message: object) -> NoReturn:
    raise _Raised(str(message))


def _strftime_now(pattern: str) -> str:
    return datetime.now().strftime(pattern)


def _parts(text: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text}]


def _text_of(part: Any) -> str:
    if isinstance(part, str):
        return part
    if not isinstance(part, Mapping) or part.get("type") != "text" or not isinstance(part.get("text"), str):
        raise InvalidRequest("content parts other than text are not supported", param="messages")
    return str(part["text"])


def _with_parsed_arguments(call: Any) -> Any:
    """A tool call whose arguments are an object: OpenAI sends them as JSON text, templates write them as JSON."""
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("arguments"), str):
        return call
    try:
        arguments = json.loads(function["arguments"] or "{}")
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"a tool call's arguments are not JSON: {error}", param="messages") from error
    return {**call, "function": {**function, "arguments": arguments}}
