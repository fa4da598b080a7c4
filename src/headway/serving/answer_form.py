"""What a chat's answer must be: calls of tools, what response_format asks for, or either. Reasoning may come first."""

import json

from headway.core.config import LimitSettings
from headway.core.errors import InvalidRequest
from headway.model.answer_format import AnswerFormat
from headway.model.tool_grammar import CallGrammar
from headway.serving.request import Form, Toolset
from headway.serving.structured import grammar_source


def answer_form(
    tools: Toolset | None, form: Form | None, format: AnswerFormat, prompt_end: str, limits: LimitSettings
) -> Form | None:
    """`form`: what the request asks of the content. None: anything. Raises InvalidRequest for what cannot be kept."""
    functions = [] if tools is None else tools.callable
    strict = frozenset[str]() if tools is None else tools.strict
    grammar = CallGrammar(format, functions, strict, parallel=tools is None or tools.parallel)
    must_call = tools is not None and tools.required
    in_reasoning, may_reason = format.opens_reasoning(prompt_end), format.may_reason(prompt_end)
    if form is None and not must_call:
        if not any(function["name"] in strict for function in functions):
            return None
        lark = grammar.free(in_reasoning=in_reasoning, may_reason=may_reason)
        return Form(grammar_source("lark", lark, limits, "tools"), "tools")
    if must_call or form is None:  # then there is no content
        lark = grammar.required(in_reasoning=in_reasoning, may_reason=may_reason)
        return Form(grammar_source("lark", lark, limits, "tools"), "tools")
    if not functions and not may_reason:
        return form
    if functions and format.calls.bare:
        said = f"{form.param}: this model's calls look like JSON content; send either this or tools"
        raise InvalidRequest(said, param=form.param, code="unsupported_value")
    param = "tools" if functions else form.param
    lark = grammar.required(in_reasoning=in_reasoning, may_reason=may_reason, or_else="@content")
    [calls] = json.loads(grammar_source("lark", lark, limits, param))["grammars"]
    [content] = json.loads(form.source)["grammars"]
    source = json.dumps({"grammars": [calls, {**content, "name": "content"}]}, ensure_ascii=False)
    return Form(source, param)
