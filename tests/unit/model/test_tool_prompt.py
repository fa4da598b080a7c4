import json
from typing import Any

from headway.model.tool_prompt import with_tools

TOOL: dict[str, Any] = {"type": "function", "function": {"name": "f", "description": "é", "parameters": {}}}
USER = {"role": "user", "content": "hi"}


def call(arguments: str) -> dict[str, Any]:
    return {"id": "a", "type": "function", "function": {"name": "f", "arguments": arguments}}


def test_without_tools_nothing_changes() -> None:
    messages = [{"role": "system", "content": "s"}, USER, {"role": "assistant", "content": "a"}]
    assert with_tools(messages, None) == messages


def test_tools_are_described_in_the_system_message() -> None:
    about = with_tools([USER], [TOOL])[0]
    assert about["role"] == "system"
    assert f"<tools>\n{json.dumps(TOOL, ensure_ascii=False)}\n</tools>" in about["content"]
    assert '<tool_call>\n{"name": <function-name>, "arguments": ' in about["content"]
    given = with_tools([{"role": "system", "content": "Be brief."}, USER], [TOOL])
    assert given[0]["content"] == f"Be brief.\n\n{about['content']}" and given[1:] == [USER]


def test_calls_and_results_become_text() -> None:
    messages: list[dict[str, Any]] = [
        USER,
        {"role": "assistant", "content": "Look.", "tool_calls": [call('{"x": 1}'), call("")]},
        {"role": "tool", "content": "one", "tool_call_id": "a", "name": "f"},
        {"role": "tool", "content": "two", "tool_call_id": "a", "name": "f"},
        USER,
    ]
    wanted = '<tool_call>\n{"name": "f", "arguments": {"x": 1}}\n</tool_call>'
    wanted += '\n<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>'
    results = "<tool_response>\none\n</tool_response>\n<tool_response>\ntwo\n</tool_response>"
    assert with_tools(messages, None) == [
        USER,
        {"role": "assistant", "content": f"Look.\n{wanted}"},
        {"role": "user", "content": results},
        USER,
    ]
