"""Where settings come from, and which win."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from headway.core.config import load_settings


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


def test_settings_are_frozen() -> None:
    settings = load_settings(None, {})
    with pytest.raises(ValidationError):
        settings.server.port = 1  # type: ignore[misc]
