"""Which format a model speaks, by the chat templates of real models (see templates/README.md)."""

from pathlib import Path
from typing import Any

import pytest
from server_rig import make_text

from headway.core.errors import InvalidRequest
from headway.model.answer_format import answer_format_of
from headway.model.chat_template import ChatTemplate
from headway.model.text import load_text

TEMPLATES = Path(__file__).parent / "templates"
TOKENIZER = make_text().tokenizer
# Writes calls as Llama 3 does.
LLAMA = """{{- bos_token }}
{%- for m in messages %}
    {%- if loop.first and tools %}
        {{- 'Respond in the format {"name": function name, "parameters": dictionary}.\n' }}
        {%- for t in tools %}{{- t | tojson(indent=4) }}{% endfor %}
    {%- endif %}
    {{- '<|start_header_id|>' + m.role + '<|end_header_id|>\n\n' }}
    {%- if m.tool_calls %}
        {{- '{"name": "' + m.tool_calls[0].function.name + '", "parameters": ' }}
        {{- m.tool_calls[0].function.arguments | tojson }}{{- '}' }}
    {%- else %}{{- m.content }}{% endif %}<|eot_id|>
{%- endfor %}"""
TOOL = {"type": "function", "function": {"name": "get_weather", "description": "d", "parameters": {"type": "object"}}}


def template(name: str) -> ChatTemplate:
    return ChatTemplate((TEMPLATES / f"{name}.jinja").read_text(), {"bos_token": "<s>", "eos_token": "</s>"})


@pytest.mark.parametrize(
    ("name", "style", "thinks"),
    [
        ("Qwen-Qwen2.5-7B-Instruct", "hermes", False),
        ("Qwen-Qwen3-0.6B", "hermes", True),
        ("Qwen-QwQ-32B", "hermes", True),
        ("mistralai-Mistral-Nemo-Instruct-2407", "mistral", False),
        ("Mistral-Small-3.2-24B-Instruct-2506", "mistral_named", False),
        ("deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", None, True),  # shows no tools
        ("openai-gpt-oss-120b", None, False),  # messages in channels, which Headway does not take apart
        ("Qwen3-Coder", None, False),  # calls in XML, which Headway does not read
    ],
)
def test_real_templates(name: str, style: str | None, thinks: bool) -> None:
    format = answer_format_of(template(name), TOKENIZER)
    assert format.calls.name == (style or "hermes")
    assert format.describes_tools == (style is not None)
    assert (format.thinking == ("<think>", "</think>")) == thinks
    assert format.short_ids == (style in ("mistral", "mistral_named"))


def test_llama() -> None:
    format = answer_format_of(ChatTemplate(LLAMA, {"bos_token": "<s>"}), TOKENIZER)
    assert (format.calls.name, format.describes_tools, format.thinking) == ("llama", True, None)


def test_the_default_model_is_told_of_tools_in_a_system_message(default_model: Path) -> None:
    format = load_text(default_model).answer_format
    assert (format.calls.name, format.describes_tools, format.thinking, format.special) == ("hermes", False, None, {})


def test_a_model_without_a_template() -> None:
    format = answer_format_of(ChatTemplate(None, {}), TOKENIZER)
    assert not format.describes_tools and format.thinking is None


def test_special_tokens_of_the_format_are_shown_in_answers_alone() -> None:
    tokenizer = make_text(extra_specials=("[TOOL_CALLS]", "[ARGS]", "<other>")).tokenizer
    format = answer_format_of(template("Mistral-Small-3.2-24B-Instruct-2506"), tokenizer)
    assert format.special.keys() == {"[TOOL_CALLS]", "[ARGS]"}
    ids = tokenizer.encode("[TOOL_CALLS]f[ARGS]{}<other>", add_special=False)
    assert tokenizer.decode(ids) == "f{}"
    assert tokenizer.showing(format.special).decode(ids) == "[TOOL_CALLS]f[ARGS]{}"


@pytest.mark.parametrize(
    ("name", "variables"),
    [
        ("Qwen-Qwen3-0.6B", {"enable_thinking"}),
        ("Qwen-QwQ-32B", {"enable_thinking"}),
        ("Qwen-Qwen2.5-7B-Instruct", set()),
    ],
)
def test_variables_that_a_client_may_set(name: str, variables: set[str]) -> None:
    assert template(name).variables == variables


def test_thinking_is_switched_off() -> None:
    user: list[dict[str, Any]] = [{"role": "user", "content": "hi"}]
    qwen = template("Qwen-Qwen3-0.6B")
    assert qwen.render(user).endswith("<|im_start|>assistant\n")
    assert qwen.render(user, variables={"enable_thinking": False}).endswith("<think>\n\n</think>\n\n")
    with pytest.raises(InvalidRequest, match="no variable 'enable_thinkin'"):
        qwen.render(user, variables={"enable_thinkin": False})
    assert template("Qwen-QwQ-32B").render(user, variables={"enable_thinking": True}).endswith("<think>\n")


@pytest.mark.parametrize(
    "name", ["Qwen-Qwen2.5-7B-Instruct", "Qwen-Qwen3-0.6B", "mistralai-Mistral-Nemo-Instruct-2407"]
)
def test_a_conversation_with_tools_is_rendered(name: str) -> None:
    call = {"id": "123456789", "type": "function", "function": {"name": "get_weather", "arguments": '{"x": "é"}'}}
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": "sunny", "tool_call_id": "123456789", "name": "get_weather"},
    ]
    text = template(name).render(messages, tools=[TOOL])
    assert '"name": "get_weather", "arguments": {"x": "é"}' in text and "sunny" in text
