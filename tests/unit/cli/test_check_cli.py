"""`headway check` and `headway bench policies` on a tiny model, from the command line to the exit status."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headway.bench import check_measure
from headway.cli.main import app
from headway.scheduling.cost_model import PRIOR_S
from headway.serving.learned_costs import read_costs


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(check_measure, "SECONDS", 0.0)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("HEADWAY_ENGINE__KV_MEMORY_MB", "8")
    monkeypatch.setenv("HEADWAY_ENGINE__MAX_SEQUENCES", "16")
    monkeypatch.setenv("HEADWAY_BATCHING__MAX_WAIT_MS", "50")  # in which `static` waits for those that do not come


@pytest.fixture
def tiny(parity_fixtures: Path) -> str:
    return str(parity_fixtures / "hf" / "qwen2")


def test_check_measures_and_keeps_what_it_learned(tiny: str) -> None:
    done = CliRunner().invoke(app, ["check", tiny, "--prompt-tokens", "16", "--output-tokens", "8", "--json"])
    report = json.loads(done.stdout)
    assert done.exit_code == (1 if report["problems"] else 0)
    assert [answer["setting"] for answer in report["answers"]][:2] == ["ttft_ms", "itl_ms"]
    assert report["request"] == {"prompt": 16, "output": 8}
    assert "measuring prefill alone" in done.stderr
    kept = read_costs(Path(report["measured"]["kept_in"])).coefficients
    assert kept != PRIOR_S and list(kept) == list(report["measured"]["seconds"].values())


def test_an_impossible_promise_is_an_exit_status(tiny: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWAY_PROMISE__ITL_MS", "0.000001")
    done = CliRunner().invoke(app, ["check", tiny, "--workload", "chat", "--prompt-tokens", "16"])
    assert done.exit_code == 1
    assert "itl_ms = 1e-06 cannot be kept" in " ".join(done.stdout.split())


def test_policies_prints_and_plots_one_trace(tiny: str, tmp_path: Path) -> None:
    plot, trace = tmp_path / "p.svg", tmp_path / "trace.csv"
    rows = [f"2023-11-16 18:00:0{i}.0,{20 * i + 10},{5 * i + 5}" for i in range(6)]
    trace.write_text("\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *rows]))
    args = ["bench", "policies", "--model", tiny, "--trace", str(trace), "--rounds", "1", "--plot", str(plot), "--json"]
    done = CliRunner().invoke(app, args)
    assert done.exit_code == 0, done.output
    result = json.loads(done.stdout)
    assert result["trace"] == "trace.csv" and result["requests"] == 6 and len(result["points"]) == 12
    assert ">continuous p50<" in plot.read_text()
