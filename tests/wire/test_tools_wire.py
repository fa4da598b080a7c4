"""Tools and reasoning over the wire: the openai client, whole and streamed, on a model that says what it is told to."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from server_rig import Rig, make_rig

TOOLS: list[Any] = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "The weather in a city.",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        },
    },
    {"type": "function", "function": {"name": "get_time"}},
]
ARGUMENTS = '{"city": "\\"Paris\\" \\n"}'
CALL = f'<tool_call>\n{{"name": "get_weather", "arguments": {ARGUMENTS}}}\n</tool_call>'
TIME = '<tool_call>\n{"name": "get_time", "arguments": {}}\n</tool_call>'
THOUGHT = "<think>\nI STOP and think.\n</think>"
THINKING = (
    "{% for m in messages %}<{{ m.role }}>{{ m.reasoning_content }}{{ m.content }}\n{% endfor %}<assistant>"
    "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}"
    "{% if open is defined %}<think>\n{% endif %}"
)


def answers(prompt: str) -> str:
    """By what the user has asked."""
    asked = prompt.rpartition("<user>")[2]
    if "<tool_response>" in asked:
        return "It is sunny."
    if "both" in asked:
        return f"Let me look.\n{CALL}\n{TIME}"
    if "broken" in asked:
        return '<tool_call>\n{"name": "no_such", "arguments": {}}\n</tool_call>'
    if "think" in asked:
        open, closed = prompt.endswith("<think>\n"), prompt.endswith("</think>\n\n")
        thought = (
            "" if closed else "I STOP and think.\n</think>\n\n" if open else "<think>\nI STOP and think.\n</think>\n\n"
        )
        said = CALL if "<tools>" in prompt else '{"ok": true}' if "JSON" in asked else "Hello STOP there."
        return f"{thought}{said}"
    return CALL if "<tools>" in prompt else "I know no tools."


@pytest.fixture(scope="module")
def tools_rig() -> Iterator[Rig]:
    with make_rig(answers=answers, runner={"context": 4096, "blocks": 1024}) as rig:
        yield rig
        rig.wait_idle()


@pytest.fixture(scope="module")
def thinking_rig() -> Iterator[Rig]:
    with make_rig(answers=answers, template=THINKING, runner={"context": 4096, "blocks": 1024}) as rig:
        yield rig
        rig.wait_idle()


def user(text: str) -> list[Any]:
    return [{"role": "user", "content": text}]


def whole(rig: Rig, asked: str, **options: Any) -> Any:
    return rig.openai.chat.completions.create(model="tiny", messages=user(asked), **options).choices[0]


def streamed(rig: Rig, asked: str, **options: Any) -> dict[str, Any]:
    """What the chunks of one answer add up to; their shapes are checked on the way."""
    result: dict[str, Any] = {"content": "", "reasoning": "", "calls": [], "finish": None, "deltas": 0}
    chunks = rig.openai.chat.completions.create(model="tiny", messages=user(asked), stream=True, **options)
    for chunk in chunks:
        [choice] = chunk.choices
        assert result["finish"] is None, "nothing comes after the end"
        result["finish"] = choice.finish_reason
        result["content"] += choice.delta.content or ""
        result["reasoning"] += getattr(choice.delta, "reasoning_content", None) or ""
        for call in choice.delta.tool_calls or []:
            if call.index == len(result["calls"]):  # a call begins with all that names it
                assert call.id and call.type == "function" and call.function and call.function.name
                result["calls"].append([call.function.name, ""])
            else:
                assert call.index == len(result["calls"]) - 1
                assert call.id is None and call.type is None and call.function and call.function.name is None
            result["calls"][-1][1] += call.function.arguments
            result["deltas"] += 1
    return result


def test_a_call_whole_and_streamed(tools_rig: Rig) -> None:
    choice = whole(tools_rig, "weather?", tools=TOOLS)
    assert choice.finish_reason == "tool_calls" and choice.message.content is None
    [call] = choice.message.tool_calls
    assert (call.type, call.function.name, call.function.arguments) == ("function", "get_weather", ARGUMENTS)
    parts = streamed(tools_rig, "weather?", tools=TOOLS)
    assert (parts["finish"], parts["content"], parts["calls"]) == ("tool_calls", "", [["get_weather", ARGUMENTS]])
    assert parts["deltas"] > 10


def test_the_result_goes_back_and_the_answer_comes(tools_rig: Rig) -> None:
    messages = user("weather?")
    first = whole(tools_rig, "weather?", tools=TOOLS).message
    messages.append(first.model_dump())  # as openai-python has it, with its nulls
    messages.append({"role": "tool", "tool_call_id": first.tool_calls[0].id, "content": "sunny"})
    create = tools_rig.openai.chat.completions.create
    second = create(model="tiny", messages=messages, tools=TOOLS).choices[0]
    assert (second.finish_reason, second.message.content) == ("stop", "It is sunny.")
    assert second.message.tool_calls is None


def test_what_clients_add_to_a_message_may_come_back(tools_rig: Rig) -> None:
    """openai-python's and openai-node's parsed messages, and those that they put together from a stream."""
    function = {"name": "get_weather", "arguments": ARGUMENTS}
    call = {"id": "a", "type": "function", "function": function}
    added = {**call, "index": 0, "function": {**function, "parsed_arguments": json.loads(ARGUMENTS)}}
    result = {"role": "tool", "tool_call_id": "a", "content": "sunny"}
    counts, texts = set(), set()
    for said in (
        {"role": "assistant", "tool_calls": [call]},
        {"role": "assistant", "content": None, "refusal": None, "parsed": None, "tool_calls": [added]},
        {"role": "assistant", "content": "", "parsed": {"a": 1}, "annotations": [], "tool_calls": [added]},
    ):
        body = {"messages": [*user("weather?"), said, result], "tools": TOOLS}
        answer = tools_rig.http.post("/v1/chat/completions", json=body)
        assert answer.status_code == 200, answer.text
        counts.add(answer.json()["usage"]["prompt_tokens"])
        texts.add(answer.json()["choices"][0]["message"]["content"])
    assert texts == {"It is sunny."} and len(counts) == 1


def test_calls_in_parallel_and_text_before_them(tools_rig: Rig) -> None:
    choice = whole(tools_rig, "both", tools=TOOLS)
    assert choice.message.content == "Let me look."
    calls = [[call.function.name, call.function.arguments] for call in choice.message.tool_calls]
    assert calls == [["get_weather", ARGUMENTS], ["get_time", "{}"]]
    assert len({call.id for call in choice.message.tool_calls}) == 2
    parts = streamed(tools_rig, "both", tools=TOOLS)
    assert (parts["content"], parts["calls"]) == ("Let me look.", calls)


def test_at_most_one_call_where_the_client_wants_no_more(tools_rig: Rig) -> None:
    choice = whole(tools_rig, "both", tools=TOOLS, parallel_tool_calls=False)
    assert [call.function.name for call in choice.message.tool_calls] == ["get_weather"]
    assert choice.finish_reason == "tool_calls"
    parts = streamed(tools_rig, "both", tools=TOOLS, parallel_tool_calls=False)
    assert (parts["finish"], parts["calls"]) == ("tool_calls", [["get_weather", ARGUMENTS]])
    tools_rig.wait_idle()


def test_with_none_the_model_sees_no_tools(tools_rig: Rig) -> None:
    choice = whole(tools_rig, "weather?", tools=TOOLS, tool_choice="none")
    assert (choice.finish_reason, choice.message.content) == ("stop", "I know no tools.")


def test_a_call_of_no_known_tool_is_content(tools_rig: Rig) -> None:
    choice = whole(tools_rig, "broken", tools=TOOLS)
    assert (choice.finish_reason, choice.message.tool_calls) == ("stop", None)
    assert choice.message.content == '<tool_call>\n{"name": "no_such", "arguments": {}}\n</tool_call>'
    assert streamed(tools_rig, "broken", tools=TOOLS)["content"] == choice.message.content


def test_a_call_cut_off_says_length(tools_rig: Rig) -> None:
    cut = CALL.index("Paris") - 2
    choice = whole(tools_rig, "weather?", tools=TOOLS, max_tokens=cut)
    assert choice.finish_reason == "length"
    assert choice.message.tool_calls[0].function.arguments == '{"city": "'
    parts = streamed(tools_rig, "weather?", tools=TOOLS, max_tokens=cut)
    assert (parts["finish"], parts["calls"]) == ("length", [["get_weather", '{"city": "']])


def test_allowed_tools(tools_rig: Rig) -> None:
    only = {"mode": "auto", "tools": [{"type": "function", "function": {"name": "get_time"}}]}
    choice = whole(tools_rig, "both", tools=TOOLS, tool_choice={"type": "allowed_tools", "allowed_tools": only})
    assert [call.function.name for call in choice.message.tool_calls] == ["get_time"]
    assert choice.message.content == f"Let me look.\n{CALL}"


@pytest.mark.parametrize("asked", ["weather?", "both", "broken"])
def test_logprobs_are_of_every_token(tools_rig: Rig, asked: str) -> None:
    options: dict[str, Any] = {"tools": TOOLS, "logprobs": True, "top_logprobs": 1}
    choice = whole(tools_rig, asked, **options)
    said = {"weather?": CALL, "both": f"Let me look.\n{CALL}\n{TIME}"}.get(asked, choice.message.content)
    assert "".join(entry.token for entry in choice.logprobs.content) == said
    entries: list[Any] = []
    for chunk in tools_rig.openai.chat.completions.create(model="tiny", messages=user(asked), stream=True, **options):
        part = chunk.choices[0].logprobs
        entries += part.content or [] if part else []
    assert entries == choice.logprobs.content


def test_reasoning_is_apart(thinking_rig: Rig) -> None:
    answer = thinking_rig.openai.chat.completions.create(model="tiny", messages=user("think"))
    message, usage = answer.choices[0].message, answer.usage
    assert message.content == "Hello STOP there." and message.reasoning_content == "I STOP and think."  # type: ignore[attr-defined]
    assert usage is not None and usage.completion_tokens_details is not None
    assert usage.completion_tokens_details.reasoning_tokens == len(THOUGHT)
    parts = streamed(thinking_rig, "think")
    assert (parts["content"], parts["reasoning"]) == ("Hello STOP there.", "I STOP and think.")


def test_stop_strings_spare_the_reasoning(thinking_rig: Rig) -> None:
    parts = streamed(thinking_rig, "think", stop="STOP")
    assert (parts["content"], parts["reasoning"], parts["finish"]) == ("Hello ", "I STOP and think.", "stop")
    message = whole(thinking_rig, "think", stop="STOP").message
    assert (message.content, message.reasoning_content) == ("Hello ", "I STOP and think.")


@pytest.mark.parametrize(
    ("extra", "reasoning"),
    [
        ({"chat_template_kwargs": {"enable_thinking": False}}, ""),
        ({"reasoning_effort": "none"}, ""),
        ({"reasoning_effort": "high"}, "I STOP and think."),
        ({"chat_template_kwargs": {"open": True}}, "I STOP and think."),
    ],
)
def test_thinking_is_switched_by_the_template(thinking_rig: Rig, extra: dict[str, Any], reasoning: str) -> None:
    parts = streamed(thinking_rig, "think", extra_body=extra)
    assert (parts["reasoning"], parts["content"]) == (reasoning, "Hello STOP there.")


@pytest.mark.parametrize("thinks", [True, False])
@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "get_weather"}}])
def test_reasoning_may_come_before_a_call_that_must_be_made(thinking_rig: Rig, choice: Any, thinks: bool) -> None:
    extra = {"reasoning_effort": "high" if thinks else "none"}
    parts = streamed(thinking_rig, "think", tools=TOOLS, tool_choice=choice, extra_body=extra)
    assert parts["reasoning"] == ("I STOP and think." if thinks else "")
    assert (parts["calls"][0], parts["content"]) == (["get_weather", ARGUMENTS], "")
    assert parts["finish"] == "tool_calls"


@pytest.mark.parametrize("extra", [{}, {"chat_template_kwargs": {"open": True}}, {"reasoning_effort": "none"}])
def test_reasoning_may_come_before_structured_output(thinking_rig: Rig, extra: dict[str, Any]) -> None:
    schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}
    form: Any = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
    message = whole(thinking_rig, "think JSON", response_format=form, extra_body=extra).message
    assert message.content == '{"ok": true}'
    assert getattr(message, "reasoning_content", "") == ("" if "reasoning_effort" in extra else "I STOP and think.")


def test_reasoning_goes_back_to_the_template(thinking_rig: Rig) -> None:
    turns = [*user("think"), {"role": "assistant", "content": "a", "reasoning_content": "why"}, *user("think")]
    answer = thinking_rig.openai.chat.completions.create(model="tiny", messages=turns)
    prompt = "<user>think\n<assistant>whya\n<user>think\n<assistant>"
    assert answer.usage is not None and answer.usage.prompt_tokens == len(prompt)


def test_raw_chunks(tools_rig: Rig) -> None:
    body = {"messages": user("weather?"), "tools": TOOLS, "stream": True}
    lines = [line for line in tools_rig.http.post("/v1/chat/completions", json=body).text.split("\n") if line]
    assert lines[-1] == "data: [DONE]"
    chunks = [json.loads(line.removeprefix("data: "))["choices"][0] for line in lines[:-1]]
    assert chunks[0]["delta"]["role"] == "assistant"
    assert all("content" not in chunk["delta"] for chunk in chunks)
    assert [chunk["finish_reason"] for chunk in chunks] == [None] * (len(chunks) - 1) + ["tool_calls"]
    assert chunks[-1]["delta"] == {}


def refusal(rig: Rig, **body: Any) -> tuple[str, str]:
    response = rig.http.post("/v1/chat/completions", json={"messages": user("x"), **body})
    assert response.status_code == 400, response.text
    error = response.json()["error"]
    return error["param"], error["message"]


def function(**fields: Any) -> list[Any]:
    return [{"type": "function", "function": fields}]


def called(arguments: str) -> dict[str, Any]:
    call = {"id": "a", "function": {"name": "f", "arguments": arguments}}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


RESULT = {"role": "tool", "tool_call_id": "a", "content": "r"}


@pytest.mark.parametrize(
    ("param", "body"),
    [
        ("tools.0.function.name", {"tools": function(name="no spaces")}),
        ("tools.0.function.name", {"tools": function(name="x" * 65)}),
        ("tools.0.function.name", {"tools": function()}),
        ("tools.1.function.name", {"tools": function(name="f") * 2}),
        ("tools.0.type", {"tools": [{"type": "custom", "custom": {}}]}),
        ("tools.0.function.returns", {"tools": function(name="f", returns={})}),
        ("tools.0.function.parameters", {"tools": function(name="f", parameters={"type": "string"})}),
        ("tools.0.function.parameters", {"tools": function(name="f", parameters={"title": "x" * 70_000})}),
        ("tools", {"tools": [tool for n in range(129) for tool in function(name=f"f{n}")]}),
        ("tool_choice", {"tool_choice": "required"}),
        ("tool_choice", {"tools": TOOLS, "tool_choice": "maybe"}),
        ("tool_choice", {"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "h"}}}),
        ("tool_choice.function.name", {"tools": TOOLS, "tool_choice": {"type": "function", "function": {}}}),
        ("functions", {"functions": [{"name": "f"}]}),
        ("function_call", {"function_call": {"name": "f"}}),
        ("chat_template_kwargs", {"chat_template_kwargs": {"messages": []}}),
        ("chat_template_kwargs", {"chat_template_kwargs": {"no_such": 1}}),
        ("chat_template_kwargs", {"chat_template_kwargs": {"a": "x" * 20_000}}),
        ("reasoning_effort", {"reasoning_effort": "high"}),
        ("reasoning_effort", {"reasoning_effort": "some"}),
        ("messages.1.tool_call_id", {"messages": [*user("x"), RESULT]}),
        ("messages.1.tool_call_id", {"messages": [*user("x"), RESULT, called("{}")]}),
        ("messages.0.tool_call_id", {"messages": [{**RESULT, "role": "user"}]}),
        ("messages.0.tool_calls", {"messages": [{**called("{}"), "role": "user", "content": "x"}]}),
        ("messages.0.reasoning_content", {"messages": [{"role": "user", "content": "x", "reasoning_content": "r"}]}),
        ("messages.0.content", {"messages": [{"role": "assistant", "content": None}]}),
        ("messages.0.tool_calls.0.id", {"messages": [{"role": "assistant", "content": "x", "tool_calls": [{}]}]}),
        ("messages.0.tool_calls.0.function.arguments", {"messages": [called("{")]}),
        ("messages.0.tool_calls.0.function.arguments", {"messages": [called("[]")]}),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_by_name(tools_rig: Rig, param: str, body: dict[str, Any]) -> None:
    named, message = refusal(tools_rig, **body)
    assert named == param
    assert param in message or param.startswith(("chat_template_kwargs", "tools"))
