"""Tools for models whose chat template knows none: described in a system message, calls and results as plain text.

The format is that of Hermes and Qwen, which most models have seen.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

_ABOUT = """# Tools

You may call functions to help with the user's request. Their signatures are within <tools></tools>, one a line:
<tools>
{tools}
</tools>

To call a function, answer with a JSON object of its name and its arguments within <tool_call></tool_call>:
<tool_call>
{{"name": <function-name>, "arguments": <object of the arguments>}}
</tool_call>"""


def with_tools(
    messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] | None
) -> list[Mapping[str, Any]]:
    """The same conversation in system, user and assistant messages of plain text."""
    result: list[Mapping[str, Any]] = []
    for message in messages:
        if message.get("role") == "tool":
            response = f"<tool_response>\n{message['content']}\n</tool_response>"
            if result and result[-1].get("responds"):
                result[-1] = {**result[-1], "content": f"{result[-1]['content']}\n{response}"}
            else:
                result.append({"role": "user", "content": response, "responds": True})
        elif message.get("tool_calls"):
            rest = {key: value for key, value in message.items() if key != "tool_calls"}
            texts = [message["content"]] if message.get("content") else []
            result.append({**rest, "content": "\n".join([*texts, *map(_call, message["tool_calls"])])})
        else:
            result.append(message)
    if tools:
        about = _ABOUT.format(tools="\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools))
        if result and result[0].get("role") == "system":
            result[0] = {**result[0], "content": f"{result[0]['content']}\n\n{about}"}
        else:
            result.insert(0, {"role": "system", "content": about})
    return [{key: value for key, value in message.items() if key != "responds"} for message in result]


def _call(call: Mapping[str, Any]) -> str:
    function = call["function"]
    arguments = function["arguments"] or "{}"
    return f'<tool_call>\n{{"name": "{function["name"]}", "arguments": {arguments}}}\n</tool_call>'
