"""Streams over a real socket, and every way in which they can end."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from script_server import Ending, Reply, Script, error, stream, whole

from headway.client import (
    APIStatusError,
    AsyncClient,
    ConnectionFailed,
    DeadlineExceeded,
    Restarted,
    Retry,
    StreamDropped,
    StreamFailed,
    Usage,
)
from headway.core.errors import InvalidRequest

DONE = "data: [DONE]"
LOST: list[Ending] = ["whole", "fin", "reset", "silence"]
UNKNOWN = error(400, "unknown parameter: stream_options.resumable", "stream_options.resumable", "unknown_parameter")


def chunk(text: str = "", finish: str | None = None, name: str = "c-7", **more: Any) -> str:
    choice = {"index": 0, "delta": {"content": text} if text else {}, "finish_reason": finish, **more}
    return "data: " + json.dumps({"id": name, "object": "chat.completion.chunk", "choices": [choice]})


def usage(name: str = "c-7") -> str:
    tokens = {"prompt_tokens": 2, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 1}}
    return "data: " + json.dumps({"id": name, "choices": [], "usage": tokens})


def numbered(*events: str, start: int = 1, name: str = "c-7") -> list[str]:
    return [f"id: {name}-{n}\n{event}" for n, event in enumerate(events, start)]


ABC = [chunk("a"), chunk("b"), chunk("c"), chunk(finish="stop"), usage(), DONE]
NUMBERED = numbered(*ABC)
ABC_WHOLE = whole({"choices": [{"index": 0, "message": {"content": "abc"}, "finish_reason": "stop"}]})


def client(script: Script, time: Any, **options: Any) -> AsyncClient:
    return AsyncClient(script.url, model="m", timing=time.timing, **options)


def patience(ending: Ending) -> float:
    """An idle timeout that only silence reaches, on a slow machine too."""
    return 0.3 if ending == "silence" else 20.0


async def read(script: Script, time: Any, **options: Any) -> tuple[list[str], Any]:
    """The pieces of text, and the stream."""
    async with client(script, time, **options) as own, own.stream("hi") as answer:
        return [piece async for piece in answer], answer


async def test_text_events_and_tokens(serve: Callable[..., Script], time: Any) -> None:
    ids = [chunk("a", token_ids=[1]), chunk("b", token_ids=[2, 3]), chunk(finish="stop"), DONE]
    script = serve(stream(*ABC), stream(*ABC), stream(*ids), stream(*ABC))
    async with client(script, time) as own:
        answer = own.stream("hi", temperature=0)
        assert [piece async for piece in answer] == ["a", "b", "c"]  # without `with`, too
        assert (answer.text, answer.finish_reason, answer.truncated) == ("abc", "stop", False)
        assert answer.usage == Usage(2, 3, 1)
        async with own.stream("hi") as answer:
            events = [event async for event in answer.events()]
        assert [f"data: {json.dumps(event)}" for event in events] == ABC[:-1]
        assert answer.text == "abc"
        async with own.stream("hi", return_token_ids=True) as answer:
            assert [token async for token in answer.tokens()] == [1, 2, 3]
        async with own.stream("hi", return_token_ids=True) as answer:
            with pytest.raises(StreamFailed, match="gives no token ids"):
                await anext(answer.tokens())
    assert script.bodies[0] == {
        "messages": [{"role": "user", "content": "hi"}],
        "temperature": 0,
        "model": "m",
        "stream": True,
        "stream_options": {"resumable": True, "include_usage": True},
    }


async def test_ways_of_reading_that_make_no_sense(serve: Callable[..., Script], time: Any) -> None:
    script = serve(stream(*ABC))
    async with client(script, time) as own:
        with pytest.raises(InvalidRequest, match="return_token_ids"):
            await anext(own.stream("hi").tokens())
        with pytest.raises(InvalidRequest, match="2 answers side by side"):
            await anext(aiter(own.stream("hi", n=2)))
        with pytest.raises(InvalidRequest, match="call stream"):
            own.stream("hi", stream=True)
        async with own.stream("hi") as answer:
            await anext(aiter(answer))
            with pytest.raises(InvalidRequest, match="read as text already"):
                await anext(answer.events())
    assert len(script.seen) == 1


async def test_completions(serve: Callable[..., Script], time: Any) -> None:
    def piece(text: str, finish: str | None = None) -> str:
        return "data: " + json.dumps({"choices": [{"index": 0, "text": text, "finish_reason": finish}]})

    script = serve(stream(piece("a"), piece("b"), piece("", "length"), DONE), whole({"choices": [{"text": "ab"}]}))
    async with client(script, time) as own:
        assert [text async for text in own.stream_complete([1, 2])] == ["a", "b"]
        assert (await own.complete("x")).text == "ab"
    assert [(seen.path, seen.body["prompt"]) for seen in script.seen] == [
        ("/v1/completions", [1, 2]),
        ("/v1/completions", "x"),
    ]


@pytest.mark.parametrize("ending", LOST)
@pytest.mark.parametrize("told", [1, 2, 3, 4, 5])
async def test_a_dropped_stream_is_resumed(serve: Callable[..., Script], time: Any, ending: Ending, told: int) -> None:
    """Wherever it was cut, the middle of an event included, and also if the server repeats itself."""
    rest = NUMBERED[told].encode()[:-3]
    script = serve(stream(*NUMBERED[:told], ending=ending, rest=rest), stream(*NUMBERED[max(0, told - 2) :]))
    pieces, answer = await read(script, time, idle_timeout=patience(ending))
    assert pieces == ["a", "b", "c"]
    assert (answer.finish_reason, answer.usage, answer.truncated) == ("stop", Usage(2, 3, 1), False)
    assert [(seen.method, seen.path) for seen in script.seen[1:]] == [("GET", f"/v1/streams/c-7?after={told}")]
    assert time.slept == []


async def test_events_are_resumed_without_a_mark(serve: Callable[..., Script], time: Any) -> None:
    script = serve(stream(*NUMBERED[:2], ending="reset"), stream(*NUMBERED[2:]))
    async with client(script, time) as own, own.stream("hi") as answer:
        assert [f"data: {json.dumps(event)}" async for event in answer.events()] == ABC[:-1]


async def test_an_event_that_is_missing_is_asked_for(serve: Callable[..., Script], time: Any) -> None:
    script = serve(stream(*NUMBERED[:1], *NUMBERED[2:]), stream(*NUMBERED[1:]))
    pieces, _ = await read(script, time)
    assert pieces == ["a", "b", "c"] and script.seen[1].path == "/v1/streams/c-7?after=1"


async def test_resumes_go_on_while_they_bring_something(serve: Callable[..., Script], time: Any) -> None:
    cut = [stream(event, ending="reset") for event in NUMBERED[:-1]]
    script = serve(*cut, stream(NUMBERED[-1]))
    pieces, _ = await read(script, time, retry=Retry(most=1))
    assert pieces == ["a", "b", "c"] and time.slept == []


async def test_resumes_that_bring_nothing_are_bounded(serve: Callable[..., Script], time: Any) -> None:
    script = serve(stream(*NUMBERED[:2], ending="fin"), *[stream(ending="fin")] * 9)
    with pytest.raises(StreamDropped) as dropped:
        await read(script, time, retry=Retry(most=2))
    assert dropped.value.partial == "ab"
    assert [seen.method for seen in script.seen] == ["POST", "GET", "GET", "GET", "DELETE"]
    assert len(time.slept) == 2


@pytest.mark.parametrize("gone", [error(404, code="stream_not_found"), error(410, code="events_expired"), error(401)])
async def test_what_cannot_be_resumed_falls_back(serve: Callable[..., Script], time: Any, gone: Reply) -> None:
    first = stream(*NUMBERED[:2], ending="reset")
    with pytest.raises(StreamDropped, match="then: no") as dropped:
        await read(serve(first, gone), time)
    assert dropped.value.partial == "ab" and isinstance(dropped.value.__cause__, APIStatusError)
    pieces, answer = await read(serve(first, gone), time, fallback="partial")
    assert pieces == ["a", "b"] and answer.truncated and answer.finish_reason is None
    tell = [] if gone.status in (404, 410) else [error(404)]  # a DELETE for what is not gone
    again = numbered(*(event.replace("c-7", "c-8") for event in ABC), name="c-8")
    pieces, answer = await read(serve(first, gone, *tell, stream(*again)), time, fallback="retry")
    assert pieces == ["a", "b", "c"] and not answer.truncated


async def test_after_a_retry_streams_are_resumed_again(serve: Callable[..., Script], time: Any) -> None:
    again = numbered(*(event.replace("c-7", "c-8") for event in ABC), name="c-8")
    cut = (stream(*NUMBERED[:2], ending="reset"), error(404), stream(*again[:1], ending="reset"), stream(*again[1:]))
    script = serve(*cut)
    pieces, _ = await read(script, time, fallback="retry")
    assert pieces == ["a", "b", "c"] and script.seen[-1].path == "/v1/streams/c-8?after=1"


@pytest.mark.parametrize("ending", LOST)
async def test_a_stream_that_dropped_before_its_first_event_is_asked_for_again(
    serve: Callable[..., Script], time: Any, ending: Ending
) -> None:
    """Nobody knows yet whether it can be resumed, and nothing has been given."""
    script = serve(stream(ending=ending, rest=NUMBERED[0].encode()), stream(*NUMBERED))
    pieces, _ = await read(script, time, idle_timeout=patience(ending))
    assert pieces == ["a", "b", "c"] and [seen.method for seen in script.seen] == ["POST", "POST"]


@pytest.mark.parametrize("refused", [1, 2])
async def test_a_server_that_cannot_resume_is_asked_once(serve: Callable[..., Script], time: Any, refused: int) -> None:
    """Then it is known, and how much of our options it takes."""
    script = serve(*[UNKNOWN] * refused, stream(*ABC), stream(*ABC))
    async with client(script, time) as own:
        for _ in range(2):
            assert "".join([piece async for piece in own.stream("hi")]) == "abc"
    offers = [{"resumable": True, "include_usage": True}, {"include_usage": True}, None][: refused + 1]
    assert [body.get("stream_options") for body in script.bodies] == [*offers, offers[-1]]


async def test_a_request_that_is_wrong_itself_stays_wrong(serve: Callable[..., Script], time: Any) -> None:
    script = serve(*[UNKNOWN] * 3, stream(*ABC))
    async with client(script, time) as own:
        with pytest.raises(APIStatusError):
            await own.stream("hi").start()
        await own.stream("hi").start()
    assert script.bodies[-1]["stream_options"] == {"resumable": True, "include_usage": True}


@pytest.mark.parametrize("ids", [["x-5", "x-6", "x-7"], ["7", "8", "9"], ["a b", "", "c"]])
async def test_ids_of_another_kind_are_nothing_to_resume_by(
    serve: Callable[..., Script], time: Any, ids: list[str]
) -> None:
    events = [f"id: {own}\n{event}" for own, event in zip(ids, ABC, strict=False)]
    with pytest.raises(StreamDropped):
        await read(serve(stream(*events, ending="reset")), time)
    pieces, _ = await read(serve(stream(*events, *ABC[3:])), time)
    assert pieces == ["a", "b", "c"]


@pytest.mark.parametrize("ending", LOST)
async def test_a_retry_gives_no_text_twice(serve: Callable[..., Script], time: Any, ending: Ending) -> None:
    again = [chunk("abc"), chunk("d"), chunk(finish="stop"), DONE]
    script = serve(stream(*ABC[:2], ending=ending), stream(*ABC[:1], ending=ending), stream(*again))
    pieces, answer = await read(script, time, on_drop="retry", idle_timeout=patience(ending))
    assert pieces == ["a", "b", "c", "d"] and answer.text == "abcd" and not answer.truncated
    assert len(time.slept) == 2 and script.bodies[0] == script.bodies[2]


@pytest.mark.parametrize("other", [[chunk("ax"), chunk(finish="stop"), DONE], [chunk("a"), chunk(finish="stop"), DONE]])
async def test_another_text_is_not_given_as_the_rest_of_the_first(
    serve: Callable[..., Script], time: Any, other: list[str]
) -> None:
    first = stream(*ABC[:2], ending="fin")
    with pytest.raises(StreamDropped, match="different") as dropped:
        await read(serve(first, stream(*other)), time, on_drop="retry")
    assert dropped.value.partial == "ab"
    pieces, answer = await read(serve(first, stream(*other)), time, on_drop="retry", fallback="partial")
    assert pieces == ["a", "b"] and answer.truncated
    pieces, answer = await read(serve(first, stream(*other), ABC_WHOLE), time, on_drop="retry", fallback="unstreamed")
    assert pieces == ["a", "b", "c"] and answer.finish_reason == "stop"


async def test_a_different_answer_is_not_resumed(serve: Callable[..., Script], time: Any) -> None:
    other = numbered(chunk("x", name="c-8"), DONE, name="c-8")
    script = serve(stream(*NUMBERED[:2], ending="fin"), error(404), stream(*other, ending="silence"))
    with pytest.raises(StreamDropped, match="different"):
        await read(script, time, fallback="retry")
    assert (script.seen[-1].method, script.seen[-1].path) == ("DELETE", "/v1/streams/c-8")


async def test_one_unstreamed_attempt(serve: Callable[..., Script], time: Any) -> None:
    script = serve(stream(*ABC[:2], ending="fin"), ABC_WHOLE)
    pieces, answer = await read(script, time, on_drop="unstreamed")
    assert pieces == ["a", "b", "c"] and answer.finish_reason == "stop"
    assert script.bodies[1]["stream"] is False and "stream_options" not in script.bodies[1]
    with pytest.raises(StreamDropped) as dropped:
        await read(serve(stream(*ABC[:2], ending="fin"), error(400)), time, on_drop="unstreamed")
    assert dropped.value.partial == "ab"


@pytest.mark.parametrize("choice", ["retry", "unstreamed"])
async def test_readers_of_events_are_told_of_a_restart(serve: Callable[..., Script], time: Any, choice: Any) -> None:
    script = serve(stream(ABC[0], ending="fin"), stream(*ABC) if choice == "retry" else ABC_WHOLE)
    async with client(script, time, on_drop=choice) as own, own.stream("hi") as answer:
        events = [event async for event in answer.events()]
    first, mark, *rest = events
    assert isinstance(first, dict) and isinstance(mark, Restarted) and "broke off" in mark.reason
    texts = [event["choices"][0]["delta"].get("content", "") for event in rest if event["choices"]]
    assert "".join(texts) == answer.text == "abc"


async def test_nothing_given_yet_is_no_restart(serve: Callable[..., Script], time: Any) -> None:
    script = serve(stream(ending="fin"), stream(*ABC))
    async with client(script, time, on_drop="retry") as own, own.stream("hi") as answer:
        assert [f"data: {json.dumps(event)}" async for event in answer.events()] == ABC[:-1]


@pytest.mark.parametrize("ending", LOST)
async def test_the_partial_text_is_kept_where_that_was_chosen(
    serve: Callable[..., Script], time: Any, ending: Ending
) -> None:
    script = serve(stream(*ABC[:2], ending=ending))
    pieces, answer = await read(script, time, on_drop="partial", idle_timeout=patience(ending))
    assert pieces == ["a", "b"] and answer.truncated and answer.finish_reason is None


@pytest.mark.parametrize("ending", LOST)
async def test_with_its_finish_reason_an_answer_is_whole(
    serve: Callable[..., Script], time: Any, ending: Ending
) -> None:
    script = serve(stream(*ABC[:4], ending=ending))
    pieces, answer = await read(script, time, on_drop="raise", idle_timeout=patience(ending))
    assert pieces == ["a", "b", "c"] and answer.finish_reason == "stop" and not answer.truncated


async def test_all_of_several_answers_must_have_theirs(serve: Callable[..., Script], time: Any) -> None:
    second = chunk("x").replace('"index": 0', '"index": 1')
    script = serve(stream(*ABC[:4], second, ending="fin"))
    async with client(script, time) as own, own.stream("hi", n=2) as answer:
        with pytest.raises(StreamDropped):
            [event async for event in answer.events()]


@pytest.mark.parametrize("on_drop", ["resume", "retry", "unstreamed", "partial"])
@pytest.mark.parametrize("told", [0, 2])
async def test_an_error_event_is_no_drop(serve: Callable[..., Script], time: Any, on_drop: Any, told: int) -> None:
    fields = {"message": "boom", "type": "server_error", "param": None, "code": "request_failed"}
    event = "data: " + json.dumps({"error": fields})
    script = serve(stream(*ABC[:told], event, DONE))
    with pytest.raises(StreamFailed, match="boom") as failed:
        await read(script, time, on_drop=on_drop)
    assert (failed.value.code, failed.value.partial) == ("request_failed", "ab"[:told])
    assert len(script.seen) == 1


async def test_what_is_no_event_stream(serve: Callable[..., Script], time: Any) -> None:
    for reply, message in [
        (ABC_WHOLE, "not with an event stream"),
        (stream("data: <html>"), "no JSON object"),
        (stream("data: [1]"), "no JSON object"),
        (stream("data: " + "x" * 2_000_000), "more than 1048576 bytes"),
    ]:
        with pytest.raises(StreamFailed, match=message):
            await read(serve(reply), time)


async def test_comments_are_signs_of_life_but_the_deadline_runs(serve: Callable[..., Script]) -> None:
    script = serve(stream(*NUMBERED[:2], ending="alive"))
    async with AsyncClient(script.url, model="m", idle_timeout=0.6) as own, own.stream("hi", timeout=1.0) as answer:
        with pytest.raises(DeadlineExceeded) as exceeded:
            [piece async for piece in answer]
    assert exceeded.value.partial == "ab"
    assert [seen.method for seen in script.seen] == ["POST", "DELETE"]


async def test_a_server_that_is_slow_to_begin_is_not_given_the_work_twice(
    serve: Callable[..., Script], time: Any
) -> None:
    script = serve(Reply(status=None, ending="silence"), stream(*ABC))
    with pytest.raises(ConnectionFailed, match=r"did not answer within 0\.3 s"):
        await read(script, time, idle_timeout=0.3)
    assert len(script.seen) == 1


async def test_the_servers_deadline_event(serve: Callable[..., Script], time: Any) -> None:
    event = "data: " + json.dumps({"error": {"message": "late", "code": "deadline_exceeded"}})
    with pytest.raises(DeadlineExceeded, match="late") as exceeded:
        await read(serve(stream(*ABC[:2], event, DONE)), time)
    assert exceeded.value.partial == "ab"


async def test_resumes_and_retries_are_inside_the_deadline(serve: Callable[..., Script], time: Any) -> None:
    script = serve(stream(*NUMBERED[:2], ending="fin"), error(503, retry_after="7"))
    with pytest.raises(StreamDropped, match="then: no"):
        await read(script, time, timeout=5.0)
    assert time.slept == []


async def test_a_stream_left_early_is_cancelled(serve: Callable[..., Script], time: Any) -> None:
    script = serve(stream(*NUMBERED[:2], ending="alive"), whole({}))
    async with client(script, time) as own:
        async with own.stream("hi") as answer:
            async for _ in answer:
                break
        assert [piece async for piece in answer] == []
    assert [(seen.method, seen.path) for seen in script.seen[1:]] == [("DELETE", "/v1/streams/c-7")]


async def test_a_cancelled_reader_cancels_its_stream(serve: Callable[..., Script], time: Any) -> None:
    script = serve(stream(*NUMBERED[:2], ending="alive"), whole({}))
    begun = asyncio.Event()

    async def drain() -> None:
        async for _ in own.stream("hi"):
            begun.set()

    async with client(script, time) as own:
        reader = asyncio.create_task(drain())
        await begun.wait()
        reader.cancel()
        await asyncio.wait((reader,))
    assert [(seen.method, seen.path) for seen in script.seen[1:]] == [("DELETE", "/v1/streams/c-7")]


async def test_a_whole_stream_is_not_cancelled(serve: Callable[..., Script], time: Any) -> None:
    script = serve(stream(*NUMBERED))
    await read(script, time)
    assert len(script.seen) == 1


async def test_before_its_first_byte_a_stream_is_retried_as_any_call(serve: Callable[..., Script], time: Any) -> None:
    script = serve(error(429, retry_after="3"), Reply(status=None, ending="reset"), stream(*ABC))
    pieces, _ = await read(script, time, on_drop="raise")
    assert pieces == ["a", "b", "c"] and time.slept[0] == 3.0 and len(time.slept) == 2
