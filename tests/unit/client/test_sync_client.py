"""The same client for code without an event loop."""

import json
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from script_server import Script, error, stream, whole

from headway.client import CircuitBreaker, Client, StreamDropped, Usage
from headway.core.errors import InvalidRequest


def chunk(text: str = "", finish: str | None = None, **more: Any) -> str:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": finish, **more}
    return "data: " + json.dumps({"id": "c-7", "choices": [choice]})


EVENTS = [chunk("a", token_ids=[1]), chunk("b", token_ids=[2]), chunk(finish="stop"), "data: [DONE]"]
NUMBERED = [f"id: c-7-{n}\n{event}" for n, event in enumerate(EVENTS, 1)]
ANSWER = whole(
    {
        "choices": [{"index": 0, "message": {"content": "ab"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 2},
    }
)


def test_all_it_can_do(serve: Callable[..., Script], time: Any) -> None:
    script = serve(
        whole({"data": [{"id": "m"}]}), error(429, retry_after="2"), ANSWER, whole({"choices": [{"text": "x"}]}),
        stream(*NUMBERED[:1], ending="reset"), stream(*NUMBERED[1:]), stream(*EVENTS), stream(*EVENTS), stream(*EVENTS),
    )  # fmt: skip
    with Client(script.url, timing=time.timing) as own:
        assert own.models() == ["m"] and own.breaker.state == "closed"
        answer = own.chat("hi", model="m")
        assert (answer.text, answer.usage) == ("ab", Usage(1, 2)) and time.slept == [2.0]
        assert own.complete("x", model="m").text == "x"
        with own.stream("hi", model="m") as said:
            assert list(said) == ["a", "b"]
        assert (said.text, said.finish_reason, said.usage, said.truncated) == ("ab", "stop", None, False)
        assert len(list(own.stream("hi", model="m").events())) == 3
        assert list(own.stream("hi", model="m", return_token_ids=True).tokens()) == [1, 2]
        assert list(own.stream_complete("x", model="m")) == ["a", "b"]


def test_leaving_early_cancels(serve: Callable[..., Script]) -> None:
    script = serve(stream(*NUMBERED[:2], ending="alive"), whole({}))
    with Client(script.url, model="m") as own, own.stream("hi") as said:
        assert next(iter(said)) == "a"
    assert script.seen[-1].method == "DELETE"


def test_an_interrupt_cancels(serve: Callable[..., Script]) -> None:
    """Ctrl-C while nothing comes."""
    script = serve(stream(*NUMBERED[:2], ending="alive"), whole({}))
    pieces = []
    with Client(script.url, model="m") as own:
        with pytest.raises(KeyboardInterrupt), own.stream("hi") as said:
            for piece in said:
                pieces.append(piece)
                if len(pieces) == 2:
                    interrupt = signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT)
                    threading.Timer(0.05, *interrupt).start()
        assert script.seen[-1].method == "DELETE" and pieces == ["a", "b"]


def test_errors_come_through(serve: Callable[..., Script]) -> None:
    script = serve(stream(*EVENTS[:1], ending="fin"))
    with Client(script.url, model="m") as own:
        with pytest.raises(StreamDropped) as dropped:
            list(own.stream("hi"))
        assert dropped.value.partial == "a"
    with pytest.raises(InvalidRequest, match="on_drop is one of resume, retry"):
        Client(script.url, on_drop="hope")  # type: ignore[typeddict-item]


def test_several_threads_share_one(serve: Callable[..., Script]) -> None:
    script = serve(*[stream(*EVENTS)] * 16)
    with Client(script.url, model="m") as own, ThreadPoolExecutor(4) as pool:
        texts = list(pool.map(lambda i: "".join(own.stream(str(i))), range(16)))
    assert texts == ["ab"] * 16


def test_closing_twice_and_leaving_no_thread(time: Any) -> None:
    before = threading.active_count()
    own = Client("http://127.0.0.1:1", breaker=CircuitBreaker(time.clock))
    own.close()
    own.close()
    assert threading.active_count() == before
