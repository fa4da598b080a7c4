"""The Responses API, through the openai client where it can, else byte by byte."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from process_rig import is_running, serving
from server_rig import Rig, make_rig

URL = "/v1/responses"
BODY: dict[str, Any] = {"input": "Tell me a tale.", "max_output_tokens": 30, "seed": 5}
EXTRA: dict[str, Any] = {"model": "tiny", "max_output_tokens": 30, "extra_body": {"seed": 5}}


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    path = tmp_path_factory.mktemp("store") / "responses.db"
    with make_rig(server={"store_path": path}, runner={"end_probability": 0.0}) as made:
        yield made
        made.wait_idle()


def events(data: bytes) -> list[bytes]:
    """Each whole event."""
    assert data.endswith(b"\n\n")
    return [event + b"\n\n" for event in data.split(b"\n\n")[:-1]]


def payload(event: bytes) -> dict[str, Any]:
    head, data = event.decode().rstrip("\n").split("\n")
    fields: dict[str, Any] = json.loads(data.removeprefix("data: "))
    assert head == f"event: {fields['type']}"
    return fields


def rebuilt(stream: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The output as the events alone tell it."""
    output: list[dict[str, Any]] = []
    for event in stream:
        kind = event["type"]
        if kind == "response.output_item.added":
            assert event["output_index"] == len(output)
            output.append(event["item"])
        elif kind == "response.content_part.added":
            output[event["output_index"]]["content"].append(event["part"])
        elif kind == "response.output_text.delta":
            part = output[event["output_index"]]["content"][event["content_index"]]
            part["text"] += event["delta"]
            part["logprobs"] += event["logprobs"]
        elif kind == "response.output_item.done":
            item = output[event["output_index"]]
            assert {**item, "status": event["item"]["status"]} == event["item"]
            output[event["output_index"]] = event["item"]
    return output


def bare(output: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in item.items() if name != "id"} for item in output]


def test_the_object_is_whole(rig: Rig) -> None:
    answer = rig.openai.responses.create(
        input="Tell me a tale.", instructions="Be brief.", metadata={"a": "b"}, **EXTRA
    )
    assert answer.status == "incomplete" and answer.incomplete_details is not None
    assert answer.incomplete_details.reason == "max_output_tokens"
    assert answer.output_text and answer.output[0].type == "message"
    assert answer.usage is not None
    prompt = "<system>Be brief.\n<user>Tell me a tale.\n<assistant>"
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == (len(prompt), 30)
    assert answer.usage.total_tokens == len(prompt) + 30
    assert answer.usage.input_tokens_details.cached_tokens >= 0
    assert answer.usage.output_tokens_details.reasoning_tokens == 0
    assert answer.metadata == {"a": "b"} and answer.instructions == "Be brief." and answer.service_tier == "default"
    chat = rig.openai.chat.completions.create(
        model="tiny",
        messages=[{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Tell me a tale."}],
        max_tokens=30,
        seed=5,
    )
    assert chat.choices[0].message.content == answer.output_text
    again = rig.openai.responses.retrieve(answer.id)
    assert again == answer


def test_one_that_ends_by_itself_is_completed(tmp_path: Path) -> None:
    with make_rig(runner={"end_probability": 0.2}, server={"store_path": tmp_path / "r.db"}) as rig:
        answer = rig.openai.responses.create(input="x", model="tiny", temperature=0)
        assert answer.status == "completed" and answer.error is None and answer.incomplete_details is None
        with rig.openai.responses.stream(input="x", model="tiny", temperature=0) as stream:
            final = stream.get_final_response()
        assert final.output_text == answer.output_text and final.status == "completed"


@pytest.mark.parametrize("extra", [{}, {"include": ["message.output_text.logprobs"], "top_logprobs": 2}])
@pytest.mark.parametrize("store", [True, False])
def test_streamed_is_whole_and_numbered(rig: Rig, extra: dict[str, Any], store: bool) -> None:
    whole = rig.http.post(URL, json={**BODY, **extra, "store": store}).json()
    data = rig.http.post(URL, json={**BODY, **extra, "store": store, "stream": True}).content
    stream = [payload(event) for event in events(data)]
    assert [event["sequence_number"] for event in stream] == list(range(len(stream)))
    kinds = [event["type"].removeprefix("response.") for event in stream]
    assert kinds[:4] == ["created", "in_progress", "output_item.added", "content_part.added"]
    assert kinds[-4:] == ["output_text.done", "content_part.done", "output_item.done", "incomplete"]
    assert set(kinds[4:-4]) == {"output_text.delta"}
    last = stream[-1]["response"]
    assert rebuilt(stream) == last["output"]
    assert bare(last["output"]) == bare(whole["output"])
    ignored = {"id", "output", "created_at", "completed_at", "usage"}
    assert {k: v for k, v in last.items() if k not in ignored} == {k: v for k, v in whole.items() if k not in ignored}
    logprobs = last["output"][0]["content"][0]["logprobs"]
    assert len(logprobs) == (30 if extra else 0)
    found = rig.http.get(f"{URL}/{last['id']}")
    assert found.json() == last if store else found.status_code == 404


def test_replay_after_every_number(rig: Rig) -> None:
    data = rig.http.post(URL, json={**BODY, "stream": True}).content
    sent = events(data)
    id = payload(sent[0])["response"]["id"]
    for _ in range(2):  # from memory, maybe, and from the store
        assert rig.http.get(f"{URL}/{id}?stream=true").content == data
        for after in range(len(sent)):
            rest = rig.http.get(f"{URL}/{id}?stream=true&starting_after={after}").content
            assert rest == b"".join(sent[after + 1 :])
        time.sleep(0.1)
    assert rig.http.get(f"{URL}/{id}?stream=true&starting_after={len(sent)}").status_code == 400
    replay = rig.openai.responses.retrieve(id, stream=True, starting_after=3)
    assert [event.sequence_number for event in replay] == list(range(4, len(sent)))
    with rig.openai.responses.stream(response_id=id, starting_after=3) as stream:
        assert next(event.sequence_number for event in stream) == 4


def test_in_the_background(tmp_path: Path) -> None:
    with make_rig(pace=0.01, server={"store_path": tmp_path / "r.db"}) as rig:
        made = rig.openai.responses.create(input="x", background=True, **EXTRA)
        assert made.status in ("queued", "in_progress") and made.background
        data = rig.http.get(f"{URL}/{made.id}?stream=true").content  # while it is being made
        stream = [payload(event) for event in events(data)]
        kinds = [event["type"] for event in stream[:3]]
        assert kinds == ["response.created", "response.queued", "response.in_progress"]
        done = rig.openai.responses.retrieve(made.id)
        assert done.status == "incomplete" and done.to_dict()["output"] == rebuilt(stream)
        assert rig.http.get(f"{URL}/{made.id}?stream=true").content == data


def test_a_background_stream_survives_its_reader(tmp_path: Path) -> None:
    with make_rig(pace=0.01, promise={"on_stream_drop": "cancel"}, server={"store_path": tmp_path / "r.db"}) as rig:
        body = {**BODY, "stream": True, "background": True}
        with rig.http.stream("POST", URL, json=body) as response:
            first = b""
            for piece in response.iter_raw():
                first += piece
                if first.count(b"\n\n") >= 5:
                    break
        sent = events(first[: first.rindex(b"\n\n") + 2])
        id, last = payload(sent[0])["response"]["id"], payload(sent[-1])["sequence_number"]
        rest = rig.http.get(f"{URL}/{id}?stream=true&starting_after={last}").content
        assert payload(events(rest)[-1])["type"] == "response.incomplete"
        assert rig.http.get(f"{URL}/{id}?stream=true").content == b"".join(sent) + rest


def test_cancel(tmp_path: Path) -> None:
    with make_rig(pace=0.02, server={"store_path": tmp_path / "r.db"}) as rig:
        made = rig.openai.responses.create(input="x", background=True, model="tiny")
        rig.wait(lambda load: load.steps > 5)
        cancelled = rig.openai.responses.cancel(made.id)
        assert cancelled.status == "cancelled" and cancelled.error is None
        rig.wait_idle()
        assert rig.load().steps < 100
        assert rig.openai.responses.cancel(made.id) == cancelled == rig.openai.responses.retrieve(made.id)


@pytest.mark.parametrize("how", ["resume", "finish", "cancel"])
def test_a_lost_reader_of_a_stream_is_as_promised(how: str, tmp_path: Path) -> None:
    server, promise = {"store_path": tmp_path / "r.db"}, {"on_stream_drop": how, "resume_s": 0.3}
    with make_rig(pace=0.01, server=server, promise=promise) as rig:
        with rig.http.stream("POST", URL, json={**BODY, "stream": True, "max_output_tokens": 200}) as response:
            first = next(response.iter_raw())
        id = payload(events(first[: first.index(b"\n\n") + 2])[0])["response"]["id"]
        rig.wait_idle()
        assert rig.http.get(f"{URL}/{id}").json()["status"] == ("incomplete" if how == "finish" else "cancelled")


def test_a_lost_reader_of_a_whole_cancels(tmp_path: Path) -> None:
    with make_rig(pace=0.02, server={"store_path": tmp_path / "r.db"}) as rig:
        with pytest.raises(httpx.ReadTimeout):
            rig.http.post(URL, json={**BODY, "max_output_tokens": 400}, timeout=0.3)
        rig.wait_idle()
        assert rig.load().steps < 200


def test_what_to_include_may_be_said_when_it_is_read(rig: Rig) -> None:
    answer = rig.openai.responses.create(input="x", include=["message.output_text.logprobs"], **EXTRA)
    again = rig.openai.responses.retrieve(answer.id, include=["message.output_text.logprobs"])
    assert again == answer
    assert rig.http.get(f"{URL}/{answer.id}?include=moon").status_code == 400
    assert rig.http.get(f"{URL}/{answer.id}?starting_after=1").json()["error"]["param"] == "starting_after"


def test_delete(rig: Rig) -> None:
    answer = rig.openai.responses.create(input="x", **EXTRA)
    rig.openai.responses.delete(answer.id)
    for call in (rig.openai.responses.retrieve, rig.openai.responses.delete, rig.openai.responses.cancel):
        with pytest.raises(openai.NotFoundError):
            call(answer.id)


def test_conversation(rig: Rig) -> None:
    first = rig.openai.responses.create(input="My name is Ann.", **EXTRA)
    second = rig.openai.responses.create(input="Who am I?", previous_response_id=first.id, **EXTRA)
    assert second.previous_response_id == first.id and second.usage is not None
    prompt = f"<user>My name is Ann.\n<assistant>{first.output_text}\n<user>Who am I?\n<assistant>"
    by_hand = rig.openai.responses.create(
        input=[
            {"role": "user", "content": "My name is Ann."},
            *[item.to_dict() for item in first.output],  # type: ignore[list-item]
            {"role": "user", "content": [{"type": "input_text", "text": "Who am I?"}]},
        ],
        **EXTRA,
    )
    assert second.output_text == by_hand.output_text
    counted = rig.openai.responses.input_tokens.count(input="Who am I?", previous_response_id=first.id, model="tiny")
    assert counted.input_tokens == second.usage.input_tokens
    assert len(prompt.encode()) <= second.usage.input_tokens  # a token per byte, and odd bytes
    items = rig.openai.responses.input_items.list(second.id, order="asc", limit=2)
    assert [item.type for item in items.data] == ["message", "message"] and items.has_more
    every = list(rig.openai.responses.input_items.list(second.id, limit=1))  # the client turns the pages
    assert len(every) == 3 and len({item.id for item in every}) == 3
    with pytest.raises(openai.BadRequestError) as caught:
        rig.openai.responses.create(input="x", previous_response_id="resp_00", **EXTRA)
    assert caught.value.code == "previous_response_not_found"


def test_compaction(rig: Rig) -> None:
    first = rig.openai.responses.create(input="My name is Ann.", **EXTRA)
    compacted = rig.openai.responses.compact(model="tiny", previous_response_id=first.id)
    assert compacted.object == "response.compaction" and compacted.usage.output_tokens > 0
    [item] = compacted.output
    assert item.type == "compaction"
    going_on: Any = [item.to_dict(), {"role": "user", "content": "Who am I?"}]
    assert rig.openai.responses.create(input=going_on, **EXTRA).output_text
    told: Any = [{"role": "developer", "content": "Be kind."}, *[{"role": "user", "content": c * 150} for c in "abcd"]]
    long = rig.openai.responses.compact(model="tiny", input=told)  # more than fits: the oldest turns are left out
    assert [item.type for item in long.output] == ["message", "compaction"]
    assert rig.http.post(f"{URL}/compact", json={"input": "x"}).json()["error"]["param"] == "model"


def test_truncation(rig: Rig) -> None:
    long: Any = [{"role": "user", "content": c * 150} for c in "abcd"]
    with pytest.raises(openai.BadRequestError) as caught:
        rig.openai.responses.create(input=long, **EXTRA)
    assert (caught.value.code, caught.value.param) == ("context_length_exceeded", "input")
    answer = rig.openai.responses.create(input=long, truncation="auto", **EXTRA)
    assert answer.usage is not None and answer.usage.input_tokens == 3 * 157 + len("<assistant>")
    with pytest.raises(openai.BadRequestError):
        rig.openai.responses.create(input="x" * 600, truncation="auto", **EXTRA)


def test_only_the_key_that_made_it(tmp_path: Path) -> None:
    keys = ({"key": "k1", "tenant": "a"}, {"key": "k2", "tenant": "a"})
    with make_rig(keys=keys, server={"store_path": tmp_path / "r.db"}) as rig:
        mine, theirs = ({"authorization": f"Bearer {key}"} for key in ("k1", "k2"))
        id = rig.http.post(URL, json=BODY, headers=mine).json()["id"]
        for answer in (
            rig.http.get(f"{URL}/{id}", headers=theirs),
            rig.http.get(f"{URL}/{id}?stream=true", headers=theirs),
            rig.http.get(f"{URL}/{id}/input_items", headers=theirs),
            rig.http.post(f"{URL}/{id}/cancel", headers=theirs),
            rig.http.delete(f"{URL}/{id}", headers=theirs),
        ):
            assert (answer.status_code, answer.json()["error"]["code"]) == (404, "response_not_found")
        body = {**BODY, "previous_response_id": id}
        assert rig.http.post(URL, json=body, headers=theirs).json()["error"]["code"] == "previous_response_not_found"
        assert rig.http.get(f"{URL}/{id}").status_code == 401
        assert rig.http.get(f"{URL}/{id}", headers=mine).status_code == 200


BAD: list[tuple[dict[str, Any], str | None]] = [
    ({}, "input"),
    ({"input": []}, "input"),
    ({"input": 5}, "input"),
    ({"input": [{"role": "king", "content": "x"}]}, "input.0.role"),
    ({"input": [{"role": "user"}]}, "input.0.content"),
    ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input.0.content"),
    ({"input": [{"type": "item_reference", "id": "x"}]}, "input.0"),
    ({"input": [{"type": "compaction", "encrypted_content": "x"}]}, "input"),
    ({"input": [{"type": "reasoning", "encrypted_content": "x"}]}, "input.0.encrypted_content"),
    ({"input": "x", "temperature": 3}, "temperature"),
    ({"input": "x", "max_output_tokens": 0}, "max_output_tokens"),
    ({"input": "x", "max_output_tokens": 10_000}, "max_output_tokens"),
    ({"input": "x" * 600}, "input"),
    ({"input": "x", "top_logprobs": 21}, "top_logprobs"),
    ({"input": "x", "include": ["moon"]}, "include.0"),
    ({"input": "x", "stop": [""]}, "stop"),
    ({"input": "x", "stop": 5}, "stop"),
    ({"input": "x", "conversation": "c"}, "conversation"),
    ({"input": "x", "prompt": {"id": "p"}}, "prompt"),
    ({"input": "x", "tools": [{"type": "web_search"}]}, "tools.0.type"),
    ({"input": "x", "tool_choice": {"type": "mcp"}}, "tool_choice"),
    ({"input": "x", "text": {"verbosity": "low"}}, "text.verbosity"),
    ({"input": "x", "text": {"format": {"type": "xml"}}}, "text.format.type"),
    ({"input": "x", "text": {"format": {"type": "json_schema"}}}, "text.format.name"),
    ({"input": "x", "text": {"format": {"type": "text", "name": "a"}}}, "text.format.name"),
    ({"input": "x", "reasoning": {"summary": "detailed"}}, "reasoning.summary"),
    ({"input": "x", "reasoning": {"effort": "high"}}, "reasoning.effort"),
    ({"input": "x", "background": True, "store": False}, "background"),
    ({"input": "x", "stream_options": {"include_obfuscation": False}}, "stream_options"),
    (
        {"input": "x", "stream": True, "stream_options": {"include_obfuscation": True}},
        "stream_options.include_obfuscation",
    ),
    ({"input": "x", "metadata": {"a": 1}}, "metadata.a"),
    ({"input": "x", "truncation": "some"}, "truncation"),
    ({"input": "x", "temprature": 1}, "temprature"),
    ({"input": "x", "model": "gpt-9"}, "model"),
]


@pytest.mark.parametrize(("body", "param"), BAD, ids=lambda value: str(value)[:60])
def test_what_is_wrong_is_named(rig: Rig, body: dict[str, Any], param: str | None) -> None:
    answer = rig.http.post(URL, json=body)
    assert answer.status_code == (404 if param == "model" else 400), answer.text
    assert answer.json()["error"]["param"] == param, answer.text
    assert answer.headers["x-should-retry"] == "false"


def test_a_failure_is_the_last_event_and_a_status(tmp_path: Path) -> None:
    with make_rig(pace=0.02, server={"store_path": tmp_path / "r.db"}) as rig:
        body = {**BODY, "max_output_tokens": 400, "timeout": 0.5}
        last = payload(events(rig.http.post(URL, json={**body, "stream": True}).content)[-1])
        assert last["type"] == "response.failed" and last["response"]["status"] == "failed"
        assert last["response"]["error"]["code"] == "deadline_exceeded"
        assert last["response"]["output"][0]["status"] == "incomplete"
        assert rig.http.get(f"{URL}/{last['response']['id']}").json() == last["response"]
        assert rig.http.post(URL, json=body).status_code == 504


def test_without_a_store(tmp_path: Path) -> None:
    with make_rig(server={"store_days": 0}) as rig:
        answer = rig.http.post(URL, json=BODY).json()
        assert answer["store"] is False and answer["output"]
        assert rig.http.get(f"{URL}/{answer['id']}").status_code == 404
        for asked in ({"store": True}, {"background": True}):
            assert rig.http.post(URL, json={**BODY, **asked}).json()["error"]["code"] == "store_unavailable"


def test_any_worker_and_a_restart_of_everything(tmp_path: Path) -> None:
    config = tmp_path / "headway.toml"
    config.write_text(f'[server]\nstore_path = "{tmp_path}/responses.db"\n')
    with serving(workers=3, step_s=0.003, config=config) as server:
        sent: dict[str, bytes] = {}
        for _ in range(4):
            with httpx.Client(base_url=server.url, timeout=20) as client:
                data = client.post(URL, json={**BODY, "stream": True}).content
            id = payload(events(data)[0])["response"]["id"]
            for _ in range(6):  # new connections, which reach all workers sooner or later
                with httpx.Client(base_url=server.url, timeout=20) as client:
                    assert client.get(f"{URL}/{id}?stream=true").content == data
                    follow = client.post(URL, json={**BODY, "previous_response_id": id, "max_output_tokens": 2})
                assert follow.status_code == 200, follow.text
            sent[id] = data
        with httpx.Client(base_url=server.url, timeout=20) as client:
            live = client.post(URL, json={**BODY, "max_output_tokens": 400, "background": True}).json()["id"]
            for _ in range(6):
                with httpx.Client(base_url=server.url, timeout=20) as other:
                    assert other.get(f"{URL}/{live}").json()["status"] in ("queued", "in_progress", "incomplete")
            lost = client.post(URL, json={**BODY, "max_output_tokens": 400, "background": True}).json()["id"]
        children = server.children().values()
        server.process.kill()
        server.process.wait()
        end = time.monotonic() + 10
        while any(is_running(pid) for pid in children) and time.monotonic() < end:
            time.sleep(0.02)
    with serving(workers=2, config=config) as server:
        for id, data in sent.items():
            assert server.http.get(f"{URL}/{id}?stream=true").content == data
            body = {**BODY, "previous_response_id": id, "max_output_tokens": 3}
            assert server.http.post(URL, json=body).status_code == 200
        failed = server.http.get(f"{URL}/{lost}").json()
        assert failed["status"] == "failed" and failed["error"]["message"]
        assert payload(events(server.http.get(f"{URL}/{lost}?stream=true").content)[-1])["response"] == failed
