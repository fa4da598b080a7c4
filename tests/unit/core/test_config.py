"""Where settings come from, and which win."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from headway.core.config import WORKLOADS, Settings, load_settings


def test_command_line_over_environment_over_file_over_defaults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "headway.toml"
    file.write_text("[server]\nport = 1\nhost = 'file'\nmodel_name = 'file'\n[engine]\nthreads = 3\n")
    monkeypatch.setenv("HEADWAY_SERVER__PORT", "2")
    monkeypatch.setenv("HEADWAY_SERVER__HOST", "environment")
    settings = load_settings(file, {"server": {"port": 4}})
    assert settings.server.port == 4
    assert settings.server.host == "environment"
    assert settings.server.model_name == "file"
    assert settings.engine.threads == 3
    assert settings.queue.max_requests == 1024


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[server]\nprot = 1", "prot"),
        ("[engine]\nthreads = 0", "threads"),
        ("[batching]\npolicy = 'best'", "policy"),
        ("[nonsense]\n", "nonsense"),
        ("[server]\nport = 'many'", "port"),
    ],
)
def test_a_wrong_entry_is_refused_by_name(text: str, named: str, tmp_path: Path) -> None:
    file = tmp_path / "headway.toml"
    file.write_text(text)
    with pytest.raises(ValidationError, match=named):
        load_settings(file, {})


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"none\.toml"):
        load_settings(tmp_path / "none.toml", {})


KEYS = "[[keys]]\nkey = 'secret-1'\ntenant = 'a'\nweight = 2\n"


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ("[[keys]]\nkey = 'secret-1'\ntenant = 'b'", "the same key is given for tenant 'a' and tenant 'b'"),
        ("[[keys]]\nkey = 'secret-1'\ntenant = 'a'\nweight = 2", "the same key is given for tenant 'a' and tenant 'a'"),
        ("[server]\napi_key = 'secret-1'", "the same key is given for server.api_key and tenant 'a'"),
        ("[[keys]]\nkey = 'secret-2'\ntenant = 'a'", "tenant 'a' has two weights, 2.0 and 1.0"),
    ],
)
def test_keys_that_contradict_each_other(more: str, says: str, tmp_path: Path) -> None:
    file = tmp_path / "headway.toml"
    file.write_text(KEYS + more)
    with pytest.raises(ValidationError) as caught:
        load_settings(file, {})
    assert [(error["loc"], error["msg"]) for error in caught.value.errors()] == [(("keys",), says)]
    assert "secret" not in str(caught.value)


def test_a_tenant_may_have_several_keys(tmp_path: Path) -> None:
    file = tmp_path / "headway.toml"
    file.write_text(KEYS + "[[keys]]\nkey = 'secret-2'\ntenant = 'a'\nweight = 2.0\nlane = 'flex'")
    settings = load_settings(file, {"server": {"api_key": "secret-3"}})
    assert [(entry.tenant, entry.lane, entry.weight) for entry in settings.keys] == [
        ("a", "default", 2.0),
        ("a", "flex", 2.0),
    ]
    assert Settings.model_validate_json(settings.model_dump_json()).keys == settings.keys  # as the parent hands them on


def test_settings_are_frozen() -> None:
    settings = load_settings(None, {})
    with pytest.raises(ValidationError):
        settings.server.port = 1  # type: ignore[misc]


def test_every_value_of_a_preset_can_be_overridden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "headway.toml"
    file.write_text("[promise]\nitl_ms = 70\n")
    monkeypatch.setenv("HEADWAY_PROMISE__QUEUE_S", "3")
    promise = load_settings(file, {"promise": {"total_s": 9.0}}, "chat").promise
    assert (promise.ttft_ms, promise.itl_ms, promise.queue_s, promise.total_s) == (500.0, 70.0, 3.0, 9.0)
    assert load_settings(None, {}).promise.ttft_ms == 0.0
    with pytest.raises(KeyError):
        load_settings(None, {}, "nonsense")


@pytest.mark.parametrize("workload", WORKLOADS)
def test_presets_are_valid(workload: str) -> None:
    load_settings(None, {}, workload)
