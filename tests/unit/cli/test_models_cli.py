"""`headway models inspect` on tiny models."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headway.bench import quality
from headway.cli.main import app
from headway.core.errors import ModelError


def inspect(*args: str) -> dict[str, object]:
    done = CliRunner().invoke(app, ["models", "inspect", *args, "--json"])
    assert done.exit_code == 0, done.output
    return dict(json.loads(done.stdout))


def test_it_tells_what_the_files_hold(parity_fixtures: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWAY_ENGINE__KV_TYPE", "f16")
    monkeypatch.setenv("HEADWAY_ENGINE__KV_MEMORY_MB", "1")
    found = inspect(str(parity_fixtures / "hf" / "mistral_window"))
    config = json.loads((parity_fixtures / "hf" / "mistral_window" / "config.json").read_text())
    assert (found["family"], found["layers"]) == ("mistral", config["num_hidden_layers"])
    assert found["windows"] == [config["sliding_window"]]
    assert found["stored"] == found["computed"] and set(found["stored"]) == {"BF16"}  # type: ignore[call-overload]
    # Keys and values of 2 bytes; heads are padded to whole vectors of 16.
    padded = -(-int(found["head_dim"]) // 16) * 16  # type: ignore[call-overload]
    per_token = config["num_hidden_layers"] * config["num_key_value_heads"] * padded * 4
    assert found["kv_bytes_per_token"] == per_token
    assert found["kv_tokens"] == (1 << 20) // (16 * per_token) * 16


def test_what_quantising_makes_of_it(parity_fixtures: Path) -> None:
    path = str(parity_fixtures / "hf" / "llama_llama3")
    plain, small = inspect(path), inspect(path, "--quantize", "int4")
    assert set(small["computed"]) == {"F32", "Q8_0", "Q4_1"}  # type: ignore[call-overload]
    assert small["stored"] == plain["computed"]
    assert small["weight_bytes"] < plain["weight_bytes"] / 4  # type: ignore[operator]


def test_fewer_bits_are_worse(parity_fixtures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = tmp_path / "text.txt"
    text.write_text(quality.TEXT.read_text()[:1000])
    monkeypatch.setattr(quality, "TEXT", text)
    monkeypatch.setattr(quality, "WINDOW", 64)
    monkeypatch.setenv("HEADWAY_ENGINE__KV_TYPE", "f16")
    path = str(parity_fixtures / "hf" / "llama_llama3")
    none, int8, int4 = (inspect(path, "--quality", "--quantize", mode)["quality"] for mode in ("none", "int8", "int4"))
    assert none == {"tokens": none["tokens"], "same": 1.0, "perplexity_ratio": 1.0}  # type: ignore[index]
    assert none["tokens"] == int4["tokens"] > 100  # type: ignore[index]
    assert int4["same"] < int8["same"] <= 1  # type: ignore[index]


def test_it_prints_a_table_and_says_how_far_it_is(parity_fixtures: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quality, "WINDOW", 64)
    path = str(parity_fixtures / "hf" / "llama_llama3")
    done = CliRunner().invoke(app, ["models", "inspect", path, "--quality", "--quantize", "int8"])
    assert done.exit_code == 0, done.output
    assert "choices as in float32" in " ".join(done.stdout.split())
    assert "as computed: 0%" in done.stderr


def test_a_mode_that_is_none_is_refused(parity_fixtures: Path) -> None:
    done = CliRunner().invoke(app, ["models", "inspect", str(parity_fixtures / "hf" / "qwen2"), "--quantize", "int5"])
    assert done.exit_code == 2
    assert "engine.quantize" in done.stderr


def test_what_is_quantised_already_is_refused(parity_fixtures: Path) -> None:
    path = str(parity_fixtures / "gguf" / "llama_llama3-q4_1.gguf")
    done = CliRunner().invoke(app, ["models", "inspect", path, "--quantize", "int8"])
    assert isinstance(done.exception, ModelError)
    assert "no weights of" in done.exception.message
