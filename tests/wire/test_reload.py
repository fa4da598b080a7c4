"""/admin/settings: who may, what changes, what is refused, and what runs meanwhile."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from server_rig import Rig, make_rig, sse

from headway.core.config import LIVE

PATH = "/admin/settings"
ADMIN = {"authorization": "Bearer root"}
BODY: dict[str, Any] = {"prompt": "x", "max_tokens": 100, "temperature": 0}


@pytest.fixture
def admin() -> Iterator[Rig]:
    with make_rig(server={"admin_key": "root", "api_key": "user"}) as made:
        made.http.headers["authorization"] = "Bearer user"
        yield made
        made.wait_idle()


def patch(rig: Rig, changes: Any) -> httpx.Response:
    return rig.http.patch(PATH, json=changes, headers=ADMIN)


def shown(rig: Rig) -> dict[str, Any]:
    settings: dict[str, Any] = rig.http.get(PATH, headers=ADMIN).json()
    return settings


def until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def text_of(events: list[str]) -> str:
    return "".join(json.loads(event)["choices"][0]["text"] for event in events if event != "[DONE]")


def test_without_an_admin_key_there_is_no_such_route(rig: Rig) -> None:
    for answer in (rig.http.get(PATH, headers=ADMIN), patch(rig, {}), rig.http.get("/admin/nothing")):
        assert answer.status_code == 404 and answer.json()["error"]["code"] == "not_found"
    assert PATH not in rig.http.get("/").json()["endpoints"]


def test_only_the_admin_key_opens_it(admin: Rig) -> None:
    for key in ("Bearer user", "Bearer roo", "Bearer", "root", "Bearer root\u00a0"):
        for method in ("GET", "PATCH"):
            refused = admin.http.request(method, PATH, headers={"authorization": key.encode("latin-1")}, json={})  # type: ignore[dict-item]
            assert refused.status_code == 401 and refused.json()["error"]["code"] == "invalid_api_key"
    assert admin.http.post("/v1/completions", json=BODY, headers=ADMIN).status_code == 401  # and opens nothing else


def test_secrets_are_masked(admin: Rig) -> None:
    answer = patch(admin, {"keys": [{"key": "secret", "tenant": "a"}]})
    for text in (answer.text, admin.http.get(PATH, headers=ADMIN).text):
        assert "secret" not in text and "root" not in text
        settings = json.loads(text)
        assert settings["server"]["api_key"] == settings["server"]["admin_key"] == settings["keys"][0]["key"] == "***"
        assert settings["keys"][0]["tenant"] == "a" and settings["model"] is None


def test_a_part_of_each_live_section(admin: Rig) -> None:
    changes: dict[str, Any] = {
        "promise": {"itl_ms": 80.0},
        "batching": {"max_batch": 5},
        "queue": {"max_requests": 7},
        "lanes": {"aging_tokens": 3.0},
        "tuning": {"enabled": False},
        "limits": {"max_prompts": 2},
    }
    assert {*changes, "keys"} == set(LIVE)
    before = shown(admin)
    answer = patch(admin, changes)
    assert answer.status_code == 200
    expected = {name: {**value, **changes[name]} if name in changes else value for name, value in before.items()}
    assert answer.json() == shown(admin) == expected
    assert patch(admin, {}).json() == expected


@pytest.mark.parametrize(
    ("changes", "param", "code"),
    [
        ({"promise": {"itl_ms": 90, "ttft_ms": -1}}, "promise.ttft_ms", "invalid_value"),
        ({"promise": {"itl_ms": None}}, "promise.itl_ms", "invalid_type"),
        ({"promise": {"itl": 1}}, "promise.itl", "unknown_parameter"),
        ({"promise": 5}, "promise", "invalid_type"),
        ({"queue": {"max_requests": 3}, "engine": {"threads": 1}}, "engine", "needs_restart"),
        ({"server": {}}, "server", "needs_restart"),
        ({"model": "other"}, "model", "needs_restart"),
        ({"nonsense": {}}, "nonsense", "unknown_parameter"),
        ({"batching": {"policy": "best"}}, "batching.policy", "invalid_value"),
        ({"keys": [{"key": "k"}]}, "keys.0.tenant", "missing_required_parameter"),
        ({"keys": [{"key": "***", "tenant": "a"}]}, "keys.0.key", "invalid_value"),
        ([], None, "invalid_type"),
    ],
)
def test_what_is_wrong_is_named_and_changes_nothing(admin: Rig, changes: Any, param: str | None, code: str) -> None:
    before = shown(admin)
    answer = patch(admin, changes)
    error = answer.json()["error"]
    assert (answer.status_code, error["param"], error["code"]) == (400, param, code), answer.text
    assert shown(admin) == before


def test_infinity_and_broken_json_are_refused(admin: Rig) -> None:
    for text in ('{"promise": {"total_s": Infinity}}', '{"promise": {"total_s": NaN}}', '{"promise": '):
        answer = admin.http.patch(PATH, content=text, headers=ADMIN)
        assert answer.status_code == 400, answer.text


def test_limits_promise_and_queue_hold_for_the_next_request(admin: Rig) -> None:
    two = {"prompt": ["a", "b"], "max_tokens": 1}
    assert admin.http.post("/v1/completions", json=two).status_code == 200
    patch(admin, {"limits": {"max_prompts": 1, "max_stop_strings": 0}})
    assert admin.http.post("/v1/completions", json=two).json()["error"]["param"] == "prompt"
    chat = {"messages": [{"role": "user", "content": "x"}], "stop": ["a"]}
    assert admin.http.post("/v1/chat/completions", json=chat).json()["error"]["param"] == "stop"
    admin.pace[0] = 0.02
    patch(admin, {"promise": {"total_s": 0.2}})
    late = admin.http.post("/v1/completions", json={**BODY, "max_tokens": 400})
    assert late.status_code == 504 and late.json()["error"]["code"] == "deadline_exceeded"
    patch(admin, {"promise": {"total_s": 0}})
    admin.pace[0] = 0.0
    assert admin.http.post("/v1/completions", json=BODY).status_code == 200


def test_keys_hold_for_the_next_request() -> None:
    def status(key: str) -> int:
        headers = {"authorization": f"Bearer {key}"}
        return rig.http.post("/v1/completions", json={"prompt": "x", "max_tokens": 1}, headers=headers).status_code

    with make_rig(server={"admin_key": "root"}) as rig:
        assert status("any") == 200
        assert patch(rig, {"keys": [{"key": "one", "tenant": "a"}, {"key": "two", "tenant": "b"}]}).status_code == 200
        assert [status(key) for key in ("any", "one", "two")] == [401, 200, 200]
        patch(rig, {"keys": [{"key": "two", "tenant": "b"}]})
        assert [status(key) for key in ("any", "one", "two")] == [401, 401, 200]
        patch(rig, {"keys": []})
        assert status("any") == 200


def test_a_stream_runs_on_with_the_same_tokens(admin: Rig) -> None:
    alone = admin.http.post("/v1/completions", json=BODY).json()["choices"][0]["text"]
    admin.pace[0] = 0.02
    with admin.http.stream("POST", "/v1/completions", json={**BODY, "stream": True}) as response:
        lines = response.iter_lines()
        events = [next(lines)]
        for changes in (
            {"promise": {"itl_ms": 1}},
            {"batching": {"policy": "dynamic", "window_ms": 5}},
            {"tuning": {"enabled": False}},
            {"lanes": {"long_prompt_tokens": 1}, "queue": {"max_requests": 0}},
            {"batching": {"policy": "static", "max_wait_ms": 5}},
            {"batching": {"policy": "continuous"}, "queue": {"max_requests": 9}, "tuning": {"enabled": True}},
        ):
            assert patch(admin, changes).status_code == 200
            events.append(next(lines))
        admin.pace[0] = 0.0
        events += list(lines)
    data = sse("\n".join(events))
    assert data[-1] == "[DONE]" and text_of(data) == alone


def test_changes_at_the_same_time_merge(admin: Rig) -> None:
    wanted = {name: value + 1 for name, value in shown(admin)["limits"].items()}
    changes = [{"limits": {name: value}} for name, value in wanted.items()]
    statuses: list[int] = []
    threads = [threading.Thread(target=lambda c=c: statuses.append(patch(admin, c).status_code)) for c in changes]  # type: ignore[misc]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert statuses == [200] * len(changes)
    assert shown(admin)["limits"] == wanted


def test_the_engine_has_the_last_word(admin: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when another worker's change came in between."""
    monkeypatch.setattr("headway.serving.live_settings.with_changes", lambda settings, changes: settings)
    before = shown(admin)
    answer = patch(admin, {"queue": {"max_requests": 5}, "promise": {"itl_ms": -1}})
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (400, "promise.itl_ms") and "promise.itl_ms" in error["message"]
    answer = patch(admin, {"engine": {}})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "engine")
    assert shown(admin) == before


def test_an_engine_that_does_not_answer_in_time(admin: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headway.serving.live_settings.ANSWER_S", 0.2)
    admin.pace[0] = 1.0
    poster = threading.Thread(
        target=admin.http.post, args=("/v1/completions",), kwargs={"json": {"prompt": "x", "max_tokens": 5}}
    )
    poster.start()
    admin.wait(lambda load: load.running == 1, seconds=20)
    answer = patch(admin, {"queue": {"max_requests": 5}})
    assert answer.status_code == 504 and "may still" in answer.json()["error"]["message"]
    admin.pace[0] = 0.0
    until(lambda: shown(admin)["queue"]["max_requests"] == 5)
    poster.join()


def test_no_change_while_the_model_loads() -> None:
    loaded = threading.Event()

    def wait_for_test(rig: Rig) -> None:
        loaded.wait(20)

    with make_rig(start_runner=wait_for_test, wait_ready=False, server={"admin_key": "root"}) as rig:
        until(lambda: rig.frontend.load is not None)
        refused = patch(rig, {"queue": {"max_requests": 5}})
        assert refused.status_code == 503 and int(refused.headers["retry-after"]) >= 1
        assert shown(rig)["queue"]["max_requests"] == 1024
        loaded.set()
        rig.wait(lambda load: load.ready)
        assert patch(rig, {"queue": {"max_requests": 5}}).status_code == 200
