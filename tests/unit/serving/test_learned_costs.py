"""Step costs that outlive the process."""

from pathlib import Path

import pytest

from headway.scheduling.cost_model import PRIOR_S, CostModel, StepLoad
from headway.serving.learned_costs import costs_path, read_costs, write_costs


def taught() -> CostModel:
    costs = CostModel()
    for _ in range(60):
        costs.observe(StepLoad(8, 1000, 8), 0.02)
    return costs


def test_what_was_learned_comes_back(tmp_path: Path) -> None:
    path, costs = tmp_path / "deep" / "costs.json", taught()
    write_costs(path, costs)
    assert read_costs(path).coefficients == costs.coefficients
    assert [p.name for p in path.parent.iterdir()] == ["costs.json"]


def test_too_little_is_not_kept(tmp_path: Path) -> None:
    write_costs(tmp_path / "costs.json", CostModel())
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"coefficients": [1.0]}', '{"coefficients": [1.0, 1.0, 1.0, NaN]}'])
def test_a_useless_file_means_a_fresh_start(text: str, tmp_path: Path) -> None:
    path = tmp_path / "costs.json"
    path.write_text(text)
    assert read_costs(path).coefficients == PRIOR_S
    assert read_costs(tmp_path / "none.json").coefficients == PRIOR_S


def test_a_folder_that_cannot_be_written_is_no_failure(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    write_costs(tmp_path / "file" / "costs.json", taught())


def test_models_and_thread_counts_are_kept_apart(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    paths = {costs_path("a", 1), costs_path("a", 2), costs_path("b", 1)}
    assert len(paths) == 3
    assert all(tmp_path in path.parents for path in paths)
