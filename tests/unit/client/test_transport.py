"""One call over a real socket: its retries, the circuit breaker and the deadline."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from script_server import Reply, Script, error, whole

from headway.client import (
    APIStatusError,
    AsyncClient,
    CircuitBreaker,
    CircuitOpen,
    ClientError,
    ConnectionFailed,
    DeadlineExceeded,
    Retry,
)
from headway.client.transport import base_of, error_fields
from headway.core.errors import InvalidRequest

ANSWER = whole({"choices": [{"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}]})


def client(script: Script, time: Any, **options: Any) -> AsyncClient:
    return AsyncClient(script.url, model="m", timing=time.timing, **options)


@pytest.mark.parametrize(
    ("refusal", "waited"),
    [
        (error(429, retry_after_ms="1500", retry_after="9"), 1.5),
        (error(503, retry_after="2"), 2.0),
        (error(400, x_should_retry="true", retry_after="1"), 1.0),
    ],
)
async def test_a_named_wait_is_kept(serve: Callable[..., Script], time: Any, refusal: Reply, waited: float) -> None:
    script = serve(refusal, ANSWER)
    async with client(script, time) as own:
        assert (await own.chat("hi")).text == "hi"
    assert time.slept == [waited]
    ((told, reason),) = time.told
    assert told == waited and isinstance(reason, APIStatusError) and reason.message == "no"


@pytest.mark.parametrize(
    "failure",
    [
        *(error(status) for status in (408, 409, 429, 500, 502, 503, 529)),
        Reply(status=None, ending="reset"),
        Reply(status=None, ending="fin"),
        Reply(b'{"choices"', ending="reset"),
        Reply(b'{"choices"', ending="fin"),
    ],
    ids=lambda reply: f"{reply.status}-{reply.ending}",
)
async def test_what_passes_is_waited_for(serve: Callable[..., Script], time: Any, failure: Reply) -> None:
    script = serve(failure, failure, ANSWER)
    async with client(script, time) as own:
        assert (await own.chat("hi")).text == "hi"
    assert len(script.seen) == 3 and len(time.slept) == 2
    assert time.slept[0] <= 0.5 and 0.75 <= time.slept[1] <= 1.0
    assert script.bodies[0] == {"messages": [{"role": "user", "content": "hi"}], "model": "m", "stream": False}


@pytest.mark.parametrize(
    "refusal",
    [error(400), error(401), error(404), error(429, x_should_retry="false"), error(429, retry_after="61")],
)
async def test_what_stays_is_raised_at_once(serve: Callable[..., Script], time: Any, refusal: Reply) -> None:
    script = serve(refusal, ANSWER)
    async with client(script, time) as own:
        with pytest.raises(APIStatusError):
            await own.chat("hi")
    assert len(script.seen) == 1 and time.slept == []


@pytest.mark.parametrize("headers, tries", [({}, 2), ({"x-should-retry": "false"}, 1)])
async def test_an_error_whose_words_were_lost_is_asked_for_again(
    serve: Callable[..., Script], time: Any, headers: dict[str, str], tries: int
) -> None:
    lost = Reply(b'{"error": {"mess', status=400, headers=headers, ending="reset")
    script = serve(lost, error(400, "no such parameter", "n"))
    async with client(script, time) as own:
        with pytest.raises(APIStatusError) as raised:
            await own.chat("hi")
    assert len(script.seen) == tries and raised.value.status == 400
    assert (raised.value.message == "no such parameter") == (tries == 2)


async def test_an_error_says_all_that_the_server_said(serve: Callable[..., Script], time: Any) -> None:
    script = serve(error(429, "busy", "n", "overloaded", retry_after_ms="90000", x_request_id="r-1"))
    async with client(script, time) as own:
        with pytest.raises(APIStatusError) as raised:
            await own.chat("hi")
    e = raised.value
    assert (e.status, e.message, e.param, e.code) == (429, "busy", "n", "overloaded")
    assert (e.request_id, e.retry_after, e.may_retry) == ("r-1", 90.0, None)


async def test_tries_are_bounded(serve: Callable[..., Script], time: Any) -> None:
    script = serve(*[error(503)] * 9)
    async with client(script, time, retry=Retry(most=2)) as own:
        with pytest.raises(APIStatusError):
            await own.chat("hi")
    assert len(script.seen) == 3


async def test_a_wait_beyond_the_deadline_is_not_begun(serve: Callable[..., Script], time: Any) -> None:
    script = serve(error(429, retry_after="7"), error(429, retry_after="7"), ANSWER)
    async with client(script, time) as own:
        with pytest.raises(APIStatusError) as raised:
            await own.chat("hi", timeout=10.0)
    assert raised.value.retry_after == 7.0 and time.slept == [7.0]


async def test_the_server_is_told_what_is_left_of_the_deadline(serve: Callable[..., Script], time: Any) -> None:
    script = serve(error(429, retry_after="7"), ANSWER)
    async with client(script, time) as own:
        await own.chat("hi", timeout=10.0)
    assert [float(seen.headers["x-request-timeout"]) for seen in script.seen] == [9.9, 2.9]
    assert all("timeout" not in body for body in script.bodies)
    script = serve(ANSWER)
    async with client(script, time, timeout=None) as own:
        await own.chat("hi")
    assert "x-request-timeout" not in script.seen[0].headers


@pytest.mark.parametrize("silent", [Reply(status=None, ending="silence"), Reply(b"{", ending="alive")])
async def test_the_deadline_holds_against_a_silent_server(serve: Callable[..., Script], silent: Reply) -> None:
    script = serve(silent)
    async with AsyncClient(script.url, model="m") as own:
        with pytest.raises(DeadlineExceeded):
            await own.chat("hi", timeout=0.05)


async def test_the_servers_deadline_is_the_same_error(serve: Callable[..., Script], time: Any) -> None:
    script = serve(error(504, "too late", code="deadline_exceeded"), ANSWER)
    async with client(script, time) as own:
        with pytest.raises(DeadlineExceeded, match="too late"):
            await own.chat("hi")
    assert len(script.seen) == 1


async def test_nobody_listens(time: Any) -> None:
    async with AsyncClient("http://127.0.0.1:1", model="m", timing=time.timing, retry=Retry(most=1)) as own:
        with pytest.raises(ConnectionFailed, match=r"no answer from http://127\.0\.0\.1:1/v1"):
            await own.chat("hi")
    assert len(time.slept) == 1


async def test_an_answer_that_is_no_json_is_no_reason_to_ask_again(serve: Callable[..., Script], time: Any) -> None:
    script = serve(Reply(b"<html>"))
    async with client(script, time) as own:
        with pytest.raises(ClientError, match="no JSON"):
            await own.chat("hi")
    assert len(script.seen) == 1


async def test_the_circuit_opens_and_closes(serve: Callable[..., Script], time: Any) -> None:
    script = serve(error(500), error(429), error(500), Reply(status=None, ending="reset"), error(502), ANSWER)
    breaker = CircuitBreaker(time.clock, failures=2, open_s=30.0)
    async with client(script, time, breaker=breaker, retry=Retry(most=0)) as own:
        states = []
        for _ in range(4):  # a 429 comes from a server that is well
            with pytest.raises(ClientError):
                await own.chat("hi")
            states.append(breaker.state)
        assert states == ["closed", "closed", "closed", "open"]
        with pytest.raises(CircuitOpen) as refused:
            await own.chat("hi")
        assert refused.value.retry_after == 30.0 and len(script.seen) == 4
        time.clock.advance(30.0)
        with pytest.raises(APIStatusError):
            await own.chat("hi")  # the probe
        assert breaker.state == "open"
        time.clock.advance(30.0)
        assert (await own.chat("hi")).text == "hi"
        assert breaker.state == "closed" and len(script.seen) == 6


async def test_one_probe_at_a_time_and_a_cancelled_one_frees_its_place(serve: Callable[..., Script], time: Any) -> None:
    script = serve(error(500), Reply(status=None, ending="silence"), ANSWER)
    breaker = CircuitBreaker(time.clock, failures=1, open_s=30.0)
    async with client(script, time, breaker=breaker, retry=Retry(most=0)) as own:
        with pytest.raises(APIStatusError):
            await own.chat("hi")
        time.clock.advance(30.0)
        probe = asyncio.create_task(own.chat("hi"))
        for _ in range(2):
            assert await asyncio.to_thread(script.arrivals.acquire, timeout=5)
        with pytest.raises(CircuitOpen):
            await own.chat("hi")
        probe.cancel()
        await asyncio.wait((probe,))
        assert (await own.chat("hi")).text == "hi"


@pytest.mark.parametrize(
    ("url", "base"),
    [
        ("http://a:8000", "http://a:8000/v1"),
        ("a:8000/", "http://a:8000/v1"),
        ("https://a/v1/", "https://a/v1"),
        ("https://a/v1beta/openai", "https://a/v1beta/openai"),
        ("http://[::1]:8000", "http://[::1]:8000/v1"),
    ],
)
def test_base_urls(url: str, base: str) -> None:
    assert base_of(url) == base


@pytest.mark.parametrize("url", ["", "ftp://a", "http://", "http://a:b", "http://a:99999", "http://a?x=1"])
def test_what_is_no_base_url(url: str) -> None:
    with pytest.raises(InvalidRequest, match="is not a url"):
        base_of(url)


def test_a_key_that_no_header_can_carry(time: Any) -> None:
    with pytest.raises(InvalidRequest, match="API key"):
        AsyncClient("http://a", api_key="sk-1\n")


async def test_the_key_is_sent(serve: Callable[..., Script]) -> None:
    script = serve(ANSWER)
    async with AsyncClient(script.url, api_key="sk-1", model="m") as own:
        await own.chat("hi")
    assert script.seen[0].headers["authorization"] == "Bearer sk-1"


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        (b'{"error": {"message": "m", "type": "t", "param": "p", "code": "c"}}', ("m", "c", "p")),
        (b'{"error": {"message": "m", "type": "t", "param": null, "code": null}}', ("m", "t", None)),
        (b'{"error": {"message": "m", "code": 400}}', ("m", "400", None)),
        (b'{"error": "m"}', ("m", None, None)),
        (b'{"object": "error", "message": "m", "type": "t"}', ("m", "t", None)),
        (b'{"detail": "m"}', ("m", None, None)),
        (b"[1]", ("[1]", None, None)),
        (b" <html>\xff", ("<html>\N{REPLACEMENT CHARACTER}", None, None)),
    ],
)
def test_error_bodies_of_all_kinds(body: bytes, fields: tuple[str, str | None, str | None]) -> None:
    assert tuple(error_fields(body).values()) == fields
