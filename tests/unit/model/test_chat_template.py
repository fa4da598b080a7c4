"""Chat templates: what they are given, and that whatever goes wrong in them is the client's 400."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headway.core.errors import InvalidRequest, ModelError
from headway.model.chat_template import ChatTemplate
from headway.model.checkpoint import open_checkpoint
from headway.model.template_text import special_tokens_of, template_text_of
from headway.model.text import load_text

ModelWriter = Callable[..., Path]

USER = [{"role": "user", "content": "hi"}]


def render(text: str, messages: list[dict[str, Any]] = USER, **options: Any) -> str:
    return ChatTemplate(text, {"bos_token": "<s>"}).render(messages, **options)


def test_the_default_models_template(default_model: Path) -> None:
    """The text that transformers renders for SmolLM2."""
    template = load_text(default_model).chat_template
    system = "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
    assert template.render(USER) == system + "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    given = [{"role": "system", "content": "Be brief."}, *USER]
    expected = "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n"
    assert template.render(given, add_generation_prompt=False) == expected


def test_harmony() -> None:
    """gpt-oss's template: its variables, tools shown as types, and a call with its result."""
    text = (Path(__file__).parent / "templates" / "openai-gpt-oss-120b.jinja").read_text()
    assert ChatTemplate(text, {}).variables == {"builtin_tools", "model_identity", "reasoning_effort"}
    shown = render(text, [{"role": "system", "content": "Be brief."}, *USER], variables={"reasoning_effort": "low"})
    assert "\n\nReasoning: low\n\n" in shown
    assert shown.endswith("Be brief.\n\n<|end|><|start|>user<|message|>hi<|end|><|start|>assistant")
    tool = {"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}}}
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}
    asked = [*USER, {"role": "assistant", "content": None, "tool_calls": [call]}]
    shown = render(text, [*asked, {"role": "tool", "content": "r", "tool_call_id": "c"}], tools=[tool])
    assert "namespace functions {\n\n// d\ntype f = " in shown
    assert (
        'to=functions.f<|channel|>commentary json<|message|>{"x": 1}<|call|><|start|>functions.f to=assistant' in shown
    )


def test_blocks_are_trimmed_and_loops_can_be_left() -> None:
    leave = "  {% if loop.index > 1 %}\n    {% break %}\n  {% endif %}\n"
    text = "{%- for m in messages %}\n" + leave + "{{ m.content }}\n{% endfor %}"
    assert render(text, USER * 3) == "hi\n"


def test_tools_variables_and_special_tokens_reach_the_template() -> None:
    tool = {"type": "function", "function": {"name": "f", "description": "<a> & 'b' é"}}
    text = "{{ bos_token }}{{ tools[0] | tojson }}{{ style }}{{ add_generation_prompt }}"
    expected = '<s>{"type": "function", "function": {"name": "f", "description": "<a> & \'b\' é"}}shortTrue'
    assert render(text, tools=[tool], variables={"style": "short"}) == expected
    assert render("{{ messages | tojson(indent=1) }}") == '[\n {\n  "role": "user",\n  "content": "hi"\n }\n]'
    assert render("{% if tools is none %}none{% endif %}") == "none"


def test_generation_blocks_are_only_blocks() -> None:
    assert render("{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}") == "hi"


def test_strftime_now() -> None:
    assert render("{{ strftime_now('%Y')|length }}") == "4"


@pytest.mark.parametrize(
    ("content", "seen"),
    [
        ("hi", "hi"),
        ([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "a\nb"),
        (None, ""),
    ],
)
def test_content_is_a_string_for_most_templates(content: Any, seen: str) -> None:
    assert render("{{ messages[0]['content'] + '.' }}", [{"role": "user", "content": content}]) == seen + "."


def test_content_is_parts_for_templates_that_iterate_them() -> None:
    text = "{% for part in messages[0]['content'] %}[{{ part.text }}]{% endfor %}"
    assert render(text) == "[hi]"
    assert render(text, [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]) == "[hi]"


def test_content_is_a_string_for_templates_that_take_both() -> None:
    text = "{% set c = messages[0].content %}{% if c is string %}S{{ c }}{% else %}{{ c[0].text }}{% endif %}"
    assert render(text) == "Shi"


def test_tool_arguments_become_objects() -> None:
    call = {"type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}
    messages = [{"role": "assistant", "content": None, "tool_calls": [call]}]
    assert render("{{ messages[0].tool_calls[0].function.arguments | tojson }}", messages) == '{"x": 1}'
    assert isinstance(call["function"]["arguments"], str)  # type: ignore[index]
    call["function"]["arguments"] = "{"  # type: ignore[index]
    with pytest.raises(InvalidRequest, match="arguments are not JSON"):
        render("{{ messages }}", messages)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{{ raise_exception('roles must alternate') }}", "refuses: roles must alternate"),
        ("{{ messages[0].content + 1 }}", "cannot render"),
        ("{{ messages[0].nothing.more }}", "cannot render"),
        ("{{ messages[0].__class__.__mro__[1].__subclasses__() }}", "cannot render"),
        ("{% set _ = messages.append(1) %}", "cannot render"),
        ("{% for i in range(10000000) %}x{% endfor %}", "cannot render"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "cannot render"),
    ],
)
def test_what_fails_in_a_template_is_a_400(text: str, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message) as caught:
        render(text)
    assert caught.value.param == "messages"


def test_parts_other_than_text_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="parts other than text"):
        render("{{ messages }}", [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}])


def test_variables_cannot_replace_the_messages() -> None:
    with pytest.raises(InvalidRequest) as caught:
        render("{{ messages }}", variables={"messages": []})
    assert caught.value.param == "chat_template_kwargs"


def test_a_model_without_a_template_says_what_to_use() -> None:
    with pytest.raises(InvalidRequest, match="/v1/completions"):
        ChatTemplate(None, {}).render(USER)


def test_a_template_that_does_not_compile_is_the_models_fault() -> None:
    with pytest.raises(ModelError, match="does not compile"):
        ChatTemplate("{% for %}", {})


def test_where_templates_are_found(copy_model: ModelWriter) -> None:
    folder = copy_model(
        "qwen2", tokenizer_config={"chat_template": [{"name": "rag", "template": "R"}], "x_token": None}
    )
    assert template_text_of(open_checkpoint(folder)) is None
    named = [{"name": "rag", "template": "R"}, {"name": "default", "template": "D"}]
    (folder / "tokenizer_config.json").write_text(f'{{"chat_template": {named!r}}}'.replace("'", '"'))
    assert template_text_of(open_checkpoint(folder)) == "D"
    (folder / "chat_template.jinja").write_text("J")
    assert template_text_of(open_checkpoint(folder)) == "J"


def test_special_tokens_by_name(copy_model: ModelWriter, default_model: Path) -> None:
    folder = copy_model("qwen2", tokenizer_config={"bos_token": {"content": "<b>"}})
    assert special_tokens_of(open_checkpoint(folder))["bos_token"] == "<b>"
    expected = {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>", "unk_token": "<|endoftext|>"}
    assert special_tokens_of(open_checkpoint(default_model)) == expected | {"pad_token": "<|im_end|>"}
