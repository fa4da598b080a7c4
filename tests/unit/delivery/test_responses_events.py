"""Whatever an answer is made of: its events alone tell the whole of it."""

import json
from array import array
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headway.core.errors import DeadlineExceeded, RequestFailed
from headway.delivery.responses_events import ResponseEvents, ResponseObject
from headway.serving.text_events import (
    AnswerDelta,
    Arguments,
    CallStart,
    Content,
    Delta,
    Done,
    Part,
    Reasoning,
    Started,
    Usage,
)

TEXTS = st.text(max_size=5)
CALL = st.tuples(TEXTS, st.sampled_from(["{}", '{"a": 1}', '{"a', "x"]))


@st.composite
def answers(draw: st.DrawFn) -> list[Part]:
    parts: list[Part] = [Reasoning(text) for text in draw(st.lists(TEXTS, max_size=3))]
    parts += [Content(text) for text in draw(st.lists(TEXTS, max_size=3))]
    for index, (name, arguments) in enumerate(draw(st.lists(CALL, max_size=3))):
        parts.append(CallStart(index, f"call_{index}", name))
        parts += [Arguments(index, arguments[:1]), Arguments(index, arguments[1:])]
    return parts + [Content(text) for text in draw(st.lists(TEXTS, max_size=2))]


def make() -> ResponseEvents:
    return ResponseEvents(ResponseObject("resp_00", {"model": "m"}, "in_progress"), 0, lambda token: b"x")


def read(data: bytes) -> list[dict[str, Any]]:
    found = []
    for event in data.split(b"\n\n")[:-1]:
        head, line = event.decode().split("\n")
        fields = json.loads(line.removeprefix("data: "))
        assert head == f"event: {fields['type']}"
        found.append(fields)
    return found


def rebuilt(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    output: list[dict[str, Any]] = []
    for event in events:
        at = event.get("output_index", -1)
        kind = event["type"].removeprefix("response.")
        if kind == "output_item.added":
            assert at == len(output)
            output.append(event["item"])
        elif kind == "content_part.added":
            output[at]["content"].append(event["part"])
        elif kind in ("output_text.delta", "reasoning_text.delta"):
            output[at]["content"][event["content_index"]]["text"] += event["delta"]
        elif kind == "function_call_arguments.delta":
            output[at]["arguments"] += event["delta"]
        elif kind == "function_call_arguments.done":
            assert output[at]["arguments"] == event["arguments"]
        elif kind.endswith("text.done"):
            assert output[at]["content"][0]["text"] == event["text"]
        elif kind == "output_item.done":
            assert {**output[at], "status": event["item"]["status"]} == event["item"]
            output[at] = event["item"]
    return output


def bare(output: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in item.items() if name != "id"} for item in output]


@given(answers(), st.lists(st.integers(0, 20)), st.sampled_from(["stop", "length", "tool_calls"]))
def test_the_events_tell_the_object(parts: list[Part], cuts: list[int], reason: Any) -> None:
    """However the parts come together in deltas."""
    stream, whole = make(), make()
    edges = [0, *sorted(min(cut, len(parts)) for cut in cuts), len(parts)]
    deltas = [parts[a:b] for a, b in pairwise(edges)]
    events = [
        Started(3, 0, array("I")),
        *[AnswerDelta("", [], parts=some) for some in deltas],
        Done(reason, Usage(3, 9, 1, 4)),
    ]
    data = b"".join(stream.event(0, event) for event in events) + stream.end()
    for event in events:
        whole.add(0, event)
    told = read(data)
    assert [event["sequence_number"] for event in told] == list(range(len(told)))
    last, body = told[-1]["response"], json.loads(whole.body())
    assert rebuilt(told) == last["output"] and bare(last["output"]) == bare(body["output"])
    assert last["status"] == ("incomplete" if reason == "length" else "completed")
    assert last["usage"]["output_tokens_details"] == {"reasoning_tokens": 4}
    said = {"message": "", "reasoning": ""}
    for item in last["output"]:
        if item["type"] in said:
            said[item["type"]] += item["content"][0]["text"]
    assert said["message"] == "".join(part.text for part in parts if isinstance(part, Content))
    assert said["reasoning"] == "".join(part.text for part in parts if isinstance(part, Reasoning))
    calls = [item for item in last["output"] if item["type"] == "function_call"]
    assert [call["call_id"] for call in calls] == [part.id for part in parts if isinstance(part, CallStart)]
    for call in calls:
        assert (call["status"] == "incomplete") == (call["arguments"] not in ("{}", '{"a": 1}')) or reason == "length"


def test_an_answer_without_words_is_an_empty_message() -> None:
    events = make()
    events.add(0, Done("stop", Usage(1, 1, 0)))
    [message] = json.loads(events.body())["output"]
    assert message["content"][0]["text"] == "" and message["status"] == "completed"


def test_a_failure_keeps_what_there_was() -> None:
    for error, status in ((DeadlineExceeded("late"), "failed"), (RequestFailed("x", code="cancelled"), "cancelled")):
        events = make()
        data = (
            events.event(0, Started(1, 0, array("I")))
            + events.event(0, Delta("so", [1]))
            + events.event(0, Delta(" far", [2]))
        )
        last = read(data + events.failed(error))[-1]
        assert last["type"] == "response.failed" and last["response"]["status"] == status
        assert last["response"]["error"] == (
            {"code": "deadline_exceeded", "message": "late"} if status == "failed" else None
        )
        assert last["response"]["output"][0]["content"][0]["text"] == "so far"
        assert json.loads(events.snapshot()) == last["response"]


def test_a_failure_before_anything_has_a_beginning() -> None:
    told = read(make().failed(DeadlineExceeded("late")))
    assert [event["type"] for event in told] == ["response.created", "response.in_progress", "response.failed"]


def test_what_one_reader_is_told_changes_nothing() -> None:
    events = make()
    events.event(0, Started(1, 0, array("I")))
    before = events.snapshot()
    [told] = read(events.cut_off(DeadlineExceeded("late")))
    assert told == {
        "type": "error",
        "code": "deadline_exceeded",
        "message": "late",
        "param": None,
        "sequence_number": 2,
    }
    assert events.snapshot() == before


def test_of_one_that_waits() -> None:
    events = ResponseEvents(ResponseObject("resp_00", {}, "queued"), 0, lambda token: b"x")
    told = read(events.begin() + events.event(0, Started(1, 0, array("I"))))
    assert [event["type"] for event in told] == ["response.created", "response.queued", "response.in_progress"]
    assert [event["response"]["status"] for event in told] == ["queued", "queued", "in_progress"]
