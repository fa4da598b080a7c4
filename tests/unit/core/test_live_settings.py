"""Changes of settings while the server runs."""

import json
from typing import Any

import pytest
from pydantic import ValidationError

from headway.core.config import LIVE, KeySettings, Settings, problems, with_changes
from headway.core.errors import InvalidRequest
from headway.core.live_settings import differences, live_json, masked

START = Settings(
    model="m",
    promise={"itl_ms": 30.0, "ttft_ms": 200.0},  # type: ignore[arg-type]
    keys=[{"key": "s3cret", "tenant": "a"}],  # type: ignore[arg-type]
    server={"api_key": "ap1", "admin_key": "adm1n"},  # type: ignore[arg-type]
)


@pytest.mark.parametrize(
    ("changes", "different"),
    [
        ({"promise": {"itl_ms": 80}}, {"promise.itl_ms": "30.0 -> 80.0"}),
        ({"batching": {"policy": "static"}}, {"batching.policy": "continuous -> static"}),
        ({"queue": {"max_requests": 0}}, {"queue.max_requests": "1024 -> 0"}),
        ({"lanes": {"least_share": 0.1}}, {"lanes.least_share": "0.02 -> 0.1"}),
        ({"tuning": {"enabled": False}}, {"tuning.enabled": "True -> False"}),
        ({"limits": {"max_prompts": 1}}, {"limits.max_prompts": "64 -> 1"}),
        ({"keys": []}, {"keys": "1 of a -> none"}),
        ({"keys": [{"key": "x", "tenant": "a"}, {"key": "y", "tenant": "b"}]}, {"keys": "1 of a -> 2 of a, b"}),
        ({"keys": [{"key": "other", "tenant": "a"}]}, {"keys": "1 of a -> 1 of a"}),
        ({"promise": {}, "queue": {"max_tokens": 1_000_000}}, {}),
        ({}, {}),
    ],
)
def test_only_what_is_named_changes(changes: dict[str, Any], different: dict[str, str]) -> None:
    after = with_changes(START, changes)
    assert differences(START, after) == different
    assert after.promise.ttft_ms == 200.0 and (after.model, after.server) == (START.model, START.server)
    assert START.promise.itl_ms == 30.0


@pytest.mark.parametrize("section", sorted(Settings.model_fields.keys() - set(LIVE)))
def test_other_sections_need_a_restart(section: str) -> None:
    with pytest.raises(InvalidRequest, match="restart") as refused:
        with_changes(START, {"promise": {"itl_ms": 1}, section: {}})
    assert refused.value.param == section and refused.value.code == "needs_restart"


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"promise": {"itl_ms": -1}}, "promise.itl_ms"),
        ({"promise": {"itl_ms": float("inf")}}, "promise.itl_ms"),
        ({"promise": {"nonsense": 1}}, "promise.nonsense"),
        ({"promise": None}, "promise"),
        ({"lanes": [1]}, "lanes"),
        ({"nonsense": {}}, "nonsense"),
        ({"keys": {"key": "x"}}, "keys"),
        ({"keys": [{"key": "s3cret"}]}, "keys.0.tenant"),
        ({"keys": [{"key": "s3cret", "tenant": "a"}, {"key": "s3cret", "tenant": "b"}]}, "keys"),
        ({"keys": [{"key": "ap1", "tenant": "a"}]}, "keys"),
    ],
)
def test_a_wrong_entry_is_named_and_no_secret_shown(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(ValidationError) as refused:
        with_changes(START, changes)
    lines = problems(refused.value)
    assert lines[0].startswith(f"setting {named}: ")
    assert not any(secret in line for line in lines for secret in ("s3cret", "ap1"))


def test_the_environment_has_no_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWAY_PROMISE__ITL_MS", "7")
    monkeypatch.setenv("HEADWAY_LIMITS__MAX_PROMPTS", "7")
    after = with_changes(START, {"promise": {"ttft_ms": 1}})
    assert (after.promise.itl_ms, after.limits.max_prompts) == (30.0, 64)


def test_the_message_carries_the_live_sections_whole() -> None:
    changes = json.loads(live_json(START))
    assert changes.keys() == set(LIVE)
    other = Settings(model="m", server=START.server, engine=START.engine)
    assert with_changes(other, changes) == START
    assert "\n" not in live_json(START)


def test_masked_shows_everything_but_secrets() -> None:
    shown = masked(START)
    assert not any(secret in json.dumps(shown) for secret in ("s3cret", "ap1", "adm1n"))
    assert shown["keys"][0]["tenant"] == "a" and shown["server"]["api_key"] == "***"
    assert masked(Settings())["server"]["api_key"] is None
    assert START.keys == (KeySettings(key="s3cret", tenant="a"),)
