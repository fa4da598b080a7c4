"""Lanes, tenants and keys, from the wire to the engine."""

from collections.abc import Callable
from typing import Any

import pytest
from openai import AuthenticationError, OpenAI
from server_rig import Rig, make_rig, sse

from headway.core.lane import LANES, Lane
from headway.core.request import EngineRequest, ToEngine
from headway.scheduling.engine import Engine

CHAT, TEXT, GENERATE = "/v1/chat/completions", "/v1/completions", "/generate"
MESSAGES: list[Any] = [{"role": "user", "content": "x"}]
KEYS = (
    {"key": "gold", "tenant": "a", "lane": "priority", "weight": 3.0},
    {"key": "plain", "tenant": "b"},
    {"key": "spare", "tenant": "c", "lane": "flex"},
)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[EngineRequest]:
    """What reaches engines that are made from now on."""
    requests: list[EngineRequest] = []
    submit: Callable[[Engine, ToEngine], None] = Engine.submit

    def spy(engine: Engine, message: ToEngine) -> None:
        if isinstance(message, EngineRequest):
            requests.append(message)
        submit(engine, message)

    monkeypatch.setattr(Engine, "submit", spy)
    return requests


def client(rig: Rig, key: str) -> OpenAI:
    return OpenAI(base_url=f"{rig.url}/v1", api_key=key, max_retries=0, timeout=20)


def tiers(openai: OpenAI, **options: Any) -> set[str | None]:
    """The tiers that all chunks of a streamed chat and the whole one show."""
    create = openai.chat.completions.create
    stream = create(
        model="tiny", messages=MESSAGES, max_tokens=3, stream=True, stream_options={"include_usage": True}, **options
    )
    whole = create(model="tiny", messages=MESSAGES, max_tokens=3, **options)
    return {*(chunk.service_tier for chunk in stream), whole.service_tier}


def test_the_openai_client_chooses_a_lane_and_reads_it(sent: list[EngineRequest]) -> None:
    with make_rig() as rig:
        for tier, shown in (("flex", "flex"), ("priority", "priority"), ("default", "default"), ("auto", "default")):
            assert tiers(rig.openai, service_tier=tier) == {shown}
            assert [request.lane for request in sent[-2:]] == [LANES[shown]] * 2
        assert tiers(rig.openai) == {"default"}
        assert sent[-1].lane is Lane.DEFAULT


@pytest.mark.parametrize("key", KEYS)
def test_a_keys_lane_is_its_ceiling_and_the_response_says_so(key: dict[str, Any], sent: list[EngineRequest]) -> None:
    own = key.get("lane", "default")
    with make_rig(keys=KEYS) as rig, client(rig, key["key"]) as openai:
        for said in ("priority", "fast", "default", "flex", "auto"):
            asked = "priority" if said == "fast" else said
            got = own if asked == "auto" or LANES[asked] < LANES[own] else asked
            assert tiers(openai, service_tier=said, user="somebody") == {got}
            assert {(r.lane, r.tenant, r.weight) for r in sent[-2:]} == {
                (LANES[got], key["tenant"], key.get("weight", 1.0))
            }


def test_completions_and_generate_have_lanes_too(sent: list[EngineRequest]) -> None:
    with make_rig() as rig:
        body = {"prompt": ["x", "y"], "max_tokens": 1, "service_tier": "flex", "user": "ann", "on_timeout": "truncate"}
        for stream in (False, True):
            answer = rig.http.post(TEXT, json={**body, "stream": stream})
            assert answer.status_code == 200
            assert '"service_tier":"flex"' in answer.text
            assert {(r.lane, r.tenant, r.weight, r.truncate) for r in sent[-2:]} == {(Lane.FLEX, "ann", 1.0, True)}
        assert rig.http.get(GENERATE, params={**body, "prompt": "x"}).status_code == 200
        assert (sent[-1].lane, sent[-1].tenant, sent[-1].truncate) == (Lane.FLEX, "ann", True)
        assert rig.http.get(GENERATE, params={"prompt": "x", "max_tokens": 1}).status_code == 200
        assert (sent[-1].lane, sent[-1].tenant, sent[-1].truncate) == (Lane.DEFAULT, "", False)


@pytest.mark.parametrize("tier", ["scale", "Flex", "", 1, ["flex"]])
def test_other_tiers_are_refused_with_those_there_are(tier: Any, rig: Rig) -> None:
    asked = {"max_tokens": 1, "service_tier": tier}
    answers = [
        rig.http.post(CHAT, json={"messages": MESSAGES, **asked}),
        rig.http.post(TEXT, json={"prompt": "x", **asked}),
    ]
    if isinstance(tier, str):
        answers.append(rig.http.get(GENERATE, params={"prompt": "x", **asked}))
    for answer in answers:
        error = answer.json()["error"]
        assert (answer.status_code, error["param"]) == (400, "service_tier")
        assert all(f"'{name}'" in error["message"] for name in ("auto", "default", "flex", "priority"))
    assert rig.http.post(CHAT, json={"messages": MESSAGES, "max_tokens": 1, "service_tier": None}).status_code == 200


def test_where_there_are_keys_every_request_needs_one(sent: list[EngineRequest]) -> None:
    with make_rig(keys=KEYS, server={"api_key": "operator"}) as rig:
        for key in ("gold", "plain", "spare", "operator"):
            with client(rig, key) as openai:
                openai.completions.create(model="tiny", prompt="x", max_tokens=1, user="somebody")
        assert [(r.tenant, r.lane) for r in sent[-4:]] == [
            ("a", Lane.PRIORITY),
            ("b", Lane.DEFAULT),
            ("c", Lane.FLEX),
            ("", Lane.DEFAULT),
        ]
        headers = {"authorization": "Bearer gold"}
        assert rig.http.get(GENERATE, params={"prompt": "x", "max_tokens": 1}, headers=headers).status_code == 200
        assert (sent[-1].tenant, sent[-1].lane, sent[-1].weight) == ("a", Lane.PRIORITY, 3.0)
        count = len(sent)
        with client(rig, "gild") as openai, pytest.raises(AuthenticationError):
            openai.completions.create(model="tiny", prompt="x", max_tokens=1)
        for method, path, body in (("POST", TEXT, {"prompt": "x"}), ("GET", "/generate?prompt=x", None)):
            assert rig.http.request(method, path, json=body).status_code == 401
        assert len(sent) == count


def test_one_api_key_is_one_tenant_with_every_lane(sent: list[EngineRequest]) -> None:
    with make_rig(server={"api_key": "sesame"}) as rig, client(rig, "sesame") as openai:
        assert tiers(openai, service_tier="priority", user="ann") == {"priority"}
        assert (sent[-1].tenant, sent[-1].weight) == ("", 1.0)
        assert tiers(openai) == {"default"}


def test_on_an_open_server_the_user_is_the_tenant(sent: list[EngineRequest]) -> None:
    with make_rig() as rig:
        users = ["ann", "b" * 64, "b" * 65, "b" * 66, "\N{GRINNING FACE}" * 100, None]
        for user in users:
            body = {"messages": MESSAGES, "max_tokens": 1, "user": user}
            assert rig.http.post(CHAT, json=body).status_code == 200
        tenants = [request.tenant for request in sent[-len(users) :]]
        assert tenants[:2] == users[:2] and tenants[-1] == ""
        assert len(set(tenants)) == len(users)
        assert max(map(len, tenants)) <= 64


@pytest.mark.parametrize(("value", "truncate"), [("truncate", True), ("error", False), (None, False)])
def test_what_becomes_of_it_at_the_deadline_reaches_the_engine(
    value: str | None, truncate: bool, sent: list[EngineRequest]
) -> None:
    with make_rig() as rig:
        for path, prompt in ((CHAT, {"messages": MESSAGES}), (TEXT, {"prompt": "x"})):
            body = {**prompt, "max_tokens": 1, "timeout": 30, "on_timeout": value}
            assert rig.http.post(path, json=body).status_code == 200
            assert sent[-1].truncate is truncate
            assert sent[-1].deadline is not None


def test_the_lane_is_in_every_chunk_of_a_raw_stream(rig: Rig) -> None:
    body = {"messages": MESSAGES, "max_tokens": 4, "stream": True, "service_tier": "flex", "logprobs": True}
    events = sse(rig.http.post(CHAT, json=body).text)
    assert events[-1] == "[DONE]" and len(events) > 3
    assert all('"service_tier":"flex","choices"' in event for event in events[:-1])


def test_the_schema_tells_of_them(rig: Rig) -> None:
    document = rig.http.get("/openapi.json").json()
    for name in ("ChatRequest", "CompletionRequest"):
        fields = document["components"]["schemas"][name]["properties"]
        assert "finish_reason length" in fields["on_timeout"]["description"]
        assert "flex" in fields["service_tier"]["description"]
        assert fields["service_tier"]["anyOf"][0]["enum"] == ["auto", "default", "flex", "priority", "fast"]
