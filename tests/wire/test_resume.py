"""A resumable stream: whoever lost the connection gets the rest, byte for byte, as long as the promise says."""

import json
import random
import re
import time
from typing import Any

import httpx
import pytest
from process_rig import serving
from server_rig import Rig, make_rig, sse

CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"
BODY = {"prompt": "go", "max_tokens": 60, "seed": 1, "stream": True, "stream_options": {"resumable": True}}
EVENT = re.compile(rb"id: ([\w-]+)-(\d+)\ndata: (.*)")


def read(client: httpx.Client, method: str, path: str, most: int | None = None, **options: Any) -> bytes:
    """The body, or its first `most` bytes and then the connection is closed."""
    data = b""
    with client.stream(method, path, **options) as response:
        assert response.status_code == 200, response.read()
        for piece in response.iter_raw():
            data += piece
            if most is not None and len(data) >= most:
                break
    return data if most is None else data[:most]


def events(data: bytes) -> list[bytes]:
    """The whole ones."""
    return data.split(b"\n\n")[:-1]


def last_of(data: bytes) -> tuple[str, int]:
    found = EVENT.fullmatch(events(data)[-1])
    assert found, data
    return found[1].decode(), int(found[2])


def kept(data: bytes) -> bytes:
    """What a client keeps of a stream that was cut: its whole events."""
    return b"".join(event + b"\n\n" for event in events(data))


def texts(data: bytes) -> str:
    chunks = [json.loads(d) for d in sse(data.decode()) if d != "[DONE]"]
    return "".join(c["choices"][0]["text"] for c in chunks if c.get("choices"))


def test_every_event_has_the_next_number_and_the_streams_id() -> None:
    with make_rig() as rig:
        data = read(rig.http, "POST", TEXT, json=BODY)
        found = [EVENT.fullmatch(event) for event in events(data)]
        assert [int(f[2]) for f in found if f] == list(range(1, len(found) + 1))
        ids = {f[1].decode() for f in found if f}
        assert ids == {json.loads(f[3])["id"] for f in found[:-1] if f}
        assert found[-1] and found[-1][3] == b"[DONE]"
        plain = read(rig.http, "POST", TEXT, json={**BODY, "stream_options": None})
        assert texts(plain) == texts(data) and b"\nid:" not in plain


@pytest.mark.parametrize("how", ["get", "header", "post"])
def test_goes_on_after_any_byte(how: str) -> None:
    chance = random.Random(how)
    with make_rig(pace=0.002) as rig:
        whole = read(rig.http, "POST", TEXT, json=BODY)
        for _ in range(12):
            got = b""
            part = read(rig.http, "POST", TEXT, most=chance.randint(200, len(whole) - 1), json=BODY)
            while True:
                got += kept(part)
                stream, number = last_of(got)
                most = chance.choice([None, chance.randint(1, len(whole))])
                if how == "get":
                    part = read(rig.http, "GET", f"/v1/streams/{stream}?after={number}", most=most)
                elif how == "header":
                    header = {"last-event-id": f"{stream}-{number}"}
                    part = read(rig.http, "GET", f"/v1/streams/{stream}", most=most, headers=header)
                else:
                    header = {"last-event-id": f"{stream}-{number}"}
                    part = read(rig.http, "POST", TEXT, most=most, headers=header, json=BODY)
                if most is None:
                    got += part
                    break
            # But for id and time of creation it is the uncut stream.
            assert texts(got) == texts(whole) and len(events(got)) == len(events(whole))
            assert got == read(rig.http, "GET", f"/v1/streams/{stream}")
        rig.wait_idle()


def test_two_readers_of_one_stream_get_the_same() -> None:
    with make_rig(pace=0.01) as rig:
        stream, _ = last_of(read(rig.http, "POST", TEXT, most=400, json=BODY))
        with (
            rig.http.stream("GET", f"/v1/streams/{stream}") as one,
            rig.http.stream("GET", f"/v1/streams/{stream}") as other,
        ):
            assert one.read() == other.read()
        rig.wait_idle()


def cut_off(rig: Rig) -> str:
    """The id of a stream whose reader is gone."""
    stream, _ = last_of(read(rig.http, "POST", TEXT, most=400, json={**BODY, "max_tokens": 400}))
    return stream


def status(rig: Rig, stream: str) -> tuple[int, str]:
    answer = rig.http.get(f"/v1/streams/{stream}")
    return answer.status_code, answer.json()["error"]["code"] if answer.status_code != 200 else ""


def test_dropped_with_cancel_it_ends_at_once() -> None:
    with make_rig(pace=0.01, promise={"on_stream_drop": "cancel"}) as rig:
        stream = cut_off(rig)
        rig.wait_idle()
        assert rig.load().steps < 300
        assert status(rig, stream) == (404, "stream_not_found")


def test_dropped_with_resume_it_goes_on_for_a_while() -> None:
    with make_rig(pace=0.01, promise={"on_stream_drop": "resume", "resume_s": 0.5}) as rig:
        stream = cut_off(rig)
        before = rig.load().steps
        rig.wait(lambda load: load.steps >= before + 10)
        rig.wait_idle()  # long before its 400 tokens
        assert rig.load().steps < 300
        assert status(rig, stream) == (404, "stream_not_found")


def test_dropped_with_finish_it_goes_on_to_its_end() -> None:
    with make_rig(pace=0.001, promise={"on_stream_drop": "finish", "resume_s": 0}) as rig:
        stream = cut_off(rig)
        rig.wait_idle()
        data = rig.http.get(f"/v1/streams/{stream}").content
        assert len(texts(data)) > 300 and data.endswith(b"data: [DONE]\n\n")


def test_what_is_over_is_forgotten() -> None:
    with make_rig(server={"journal_s": 0.2}) as rig:
        stream, _ = last_of(read(rig.http, "POST", TEXT, json=BODY))
        end = time.monotonic() + 5
        while status(rig, stream)[0] == 200 and time.monotonic() < end:
            time.sleep(0.02)
        assert status(rig, stream) == (404, "stream_not_found")


def test_without_being_asked_a_drop_cancels() -> None:
    with make_rig(pace=0.01, promise={"on_stream_drop": "finish"}) as rig:
        read(rig.http, "POST", TEXT, most=200, json={**BODY, "max_tokens": 400, "stream_options": None})
        rig.wait_idle()
        assert rig.load().steps < 300


def test_it_can_be_ended() -> None:
    with make_rig(pace=0.01, promise={"on_stream_drop": "finish"}) as rig:
        stream = cut_off(rig)
        assert rig.http.delete(f"/v1/streams/{stream}").json() == {"id": stream, "object": "stream", "deleted": True}
        rig.wait_idle()
        assert rig.load().steps < 300
        assert status(rig, stream) == (404, "stream_not_found")
        assert rig.http.delete(f"/v1/streams/{stream}").status_code == 404


def test_only_the_key_that_started_it_can_read_or_end_it() -> None:
    keys = ({"key": "k1", "tenant": "a"}, {"key": "k2", "tenant": "a"}, {"key": "k3", "tenant": "b"})
    with make_rig(pace=0.01, keys=keys) as rig:
        mine = {"authorization": "Bearer k1"}
        stream, number = last_of(read(rig.http, "POST", TEXT, most=400, json=BODY, headers=mine))
        for key in ("k2", "k3"):
            theirs = {"authorization": f"Bearer {key}"}
            for answer in (
                rig.http.get(f"/v1/streams/{stream}", headers=theirs),
                rig.http.delete(f"/v1/streams/{stream}", headers=theirs),
                rig.http.post(TEXT, json=BODY, headers={**theirs, "last-event-id": f"{stream}-{number}"}),
            ):
                assert (answer.status_code, answer.json()["error"]["code"]) == (404, "stream_not_found")
        assert rig.http.get(f"/v1/streams/{stream}").status_code == 401
        assert read(rig.http, "GET", f"/v1/streams/{stream}", headers=mine).endswith(b"data: [DONE]\n\n")


def test_an_error_in_the_middle_is_kept_too() -> None:
    with make_rig(pace=0.02) as rig:
        body = {**BODY, "max_tokens": 400, "timeout": 0.5}
        data = read(rig.http, "POST", TEXT, json=body)
        stream, _ = last_of(data)
        *_, error, done = sse(data.decode())
        assert json.loads(error)["error"]["code"] == "deadline_exceeded" and done == "[DONE]"
        assert rig.http.get(f"/v1/streams/{stream}").content == data


def test_a_refusal_is_a_status_and_nothing_to_resume() -> None:
    with make_rig(queue={"max_requests": 0}, engine={"max_sequences": 1}, pace=0.01) as rig:
        first = cut_off(rig)
        answer = rig.http.post(TEXT, json=BODY)
        assert answer.status_code == 429 and "retry-after" in answer.headers
        rig.http.delete(f"/v1/streams/{first}")
        rig.wait_idle()
        too_long = rig.http.post(TEXT, json={**BODY, "prompt": "x" * 600})
        assert (too_long.status_code, too_long.json()["error"]["code"]) == (400, "context_length_exceeded")
        rig.wait_idle()


def test_what_cannot_be_resumed_says_why() -> None:
    with make_rig() as rig:
        stream, number = last_of(read(rig.http, "POST", TEXT, json=BODY))
        get, post = rig.http.get, rig.http.post
        after = {"last-event-id": f"{stream}-1"}
        for answer, expected in (
            (get(f"/v1/streams/{stream}?after={number + 1}"), 400),
            (get(f"/v1/streams/{stream}?after=-1"), 400),
            (get(f"/v1/streams/{stream}?after=1", headers=after), 400),
            (get(f"/v1/streams/{stream}", headers={"last-event-id": "nonsense"}), 400),
            (get(f"/v1/streams/{stream}", headers={"last-event-id": "cmpl-1-1"}), 404),
            (get("/v1/streams/cmpl-0123"), 404),
            (get("/v1/streams/" + stream.replace("cmpl-00", "cmpl-3f")), 404),
            (post(TEXT, json={**BODY, "seed": 2}, headers=after), 400),
            (post(TEXT, json={**BODY, "stream_options": None}, headers=after), 400),
            (post(TEXT, json=BODY, headers={"last-event-id": "cmpl-1-1"}), 404),
            (post(TEXT, json={"prompt": "x", "stream_options": {"resumable": True}}), 400),
        ):
            assert answer.status_code == expected and answer.json()["error"]["message"], answer.text


def test_the_journal_is_bounded_and_whole_events_go() -> None:
    body = {**BODY, "max_tokens": 400, "logprobs": 20}  # far more than its share of 1 MiB: 128 KiB
    with make_rig(server={"journal_mb": 1}) as rig:
        data = read(rig.http, "POST", TEXT, json=body)
        assert len(data) > 200_000
        stream, number = last_of(data)
        assert status(rig, stream) == (410, "events_expired")
        tail = read(rig.http, "GET", f"/v1/streams/{stream}?after={number - 20}")
        assert data.endswith(tail) and len(events(tail)) == 20
        for _ in range(12):  # more than fit: those that are over make room
            read(rig.http, "POST", TEXT, json=body)
            found = re.search(r"\nheadway_stream_journal_bytes (\S+)", rig.http.get("/metrics").text)
            assert found and 0 < float(found[1]) <= 1 << 20
        assert status(rig, stream) == (404, "stream_not_found")
        assert "\nheadway_streams_resumed_total 1.0\n" in rig.http.get("/metrics").text


def test_chat_too() -> None:
    with make_rig(pace=0.002) as rig:
        body = {
            "messages": [{"role": "user", "content": "hi"}], "max_tokens": 40, "seed": 3, "stream": True,
            "stream_options": {"resumable": True, "include_usage": True},
        }  # fmt: skip
        part = kept(read(rig.http, "POST", CHAT, most=1500, json=body))
        stream, number = last_of(part)
        assert stream.startswith("chatcmpl-")
        got = part + read(rig.http, "GET", f"/v1/streams/{stream}?after={number}")
        *_, usage, done = sse(got.decode())
        assert json.loads(usage)["usage"]["completion_tokens"] == 40 and done == "[DONE]"


def test_a_silent_stream_still_gets_its_comments() -> None:
    with make_rig(pace=0.6, server={"keep_alive_s": 0.1}) as rig:
        data = read(rig.http, "POST", TEXT, json={**BODY, "max_tokens": 3})
        assert data.count(b": keep-alive\n\n") >= 2
        stream = EVENT.search(data)
        assert stream and b"keep-alive" not in rig.http.get(f"/v1/streams/{stream[1].decode()}").content


def test_the_worker_that_makes_a_stream_is_found_through_any_other() -> None:
    with serving(workers=3, step_s=0.005) as server:
        for _ in range(4):
            with httpx.Client(base_url=server.url, timeout=20) as client:
                got = kept(read(client, "POST", TEXT, most=500, json=BODY))
            stream, number = last_of(got)
            for after in range(number):  # new connections, which reach all workers sooner or later
                with httpx.Client(base_url=server.url, timeout=20) as client:
                    rest = read(client, "GET", f"/v1/streams/{stream}?after={after}")
                    header = {"last-event-id": f"{stream}-{after + 1}"}
                    again = read(client, "POST", TEXT, json=BODY, headers=header)
                assert rest.endswith(again) and len(events(rest)) == len(events(again)) + 1
                assert got.startswith(b"".join(e + b"\n\n" for e in events(got)[:after])) and rest.endswith(
                    b"[DONE]\n\n"
                )
            with httpx.Client(base_url=server.url, timeout=20) as client:
                assert client.get(f"/v1/streams/{stream}?after=100000").status_code == 400
                assert client.delete(f"/v1/streams/{stream}").status_code == 200
