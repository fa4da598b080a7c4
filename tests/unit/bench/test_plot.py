"""Plots are files of the numbers alone; what they look like is for people to judge."""

import sys
from pathlib import Path

import pytest

from headway.bench.plot import LABEL_GAP, Series, bars, check_path, curve, spread
from headway.core.errors import HeadwayError, InvalidRequest

CURVES = [
    Series("steady p50", [1.0, 2.0, 3.0], [0.1, 0.2, 0.9]),
    Series("steady p99", [1.0, 2.0, 3.0], [0.2, 0.4, 1.9], dashed=True),
    Series("nothing measured", [], [], 1),
]


@pytest.mark.parametrize("suffix", ["svg", "png"])
def test_the_same_numbers_give_the_same_file(suffix: str, tmp_path: Path) -> None:
    files = [tmp_path / f"{i}.{suffix}" for i in range(4)]
    for file in files[:2]:
        curve(CURVES, "load", "latency, s", file, title="Curves", note="a note", log_y=True)
    for file in files[2:]:
        bars(["a", "b"], {"ours": [1.0, 2.0], "theirs": [float("nan"), 1.0]}, "tokens/s", file, grey="theirs")
    contents = [file.read_bytes() for file in files]
    assert contents[0] == contents[1] != contents[2] == contents[3]


def test_the_text_is_in_the_drawing(tmp_path: Path) -> None:
    path = tmp_path / "c.svg"
    curve(CURVES, "load", "latency, s", path, title="Curves", note="how it was measured")
    svg = path.read_text()
    for text in ("Curves", "load", "latency, s", "how it was measured", "steady p50", "steady p99"):
        assert f">{text}<" in svg
    assert "dc:date" not in svg


def test_what_cannot_be_drawn_is_said_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InvalidRequest, match=r"\.svg or a \.png"):
        check_path(tmp_path / "plot.gif")
    with pytest.raises(InvalidRequest, match="no such folder"):
        check_path(tmp_path / "none" / "plot.svg")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(HeadwayError, match="pip install") as failure:
        check_path(tmp_path / "plot.svg")
    assert "\n" not in failure.value.message


def test_labels_move_apart_and_no_further() -> None:
    assert spread([0.0, 50.0, 100.0], LABEL_GAP) == [0.0, 0.0, 0.0]
    places = [0.0, 1.0, 2.0, 60.0]
    moved = [place + shift for place, shift in zip(places, spread(places, 10.0), strict=True)]
    assert moved == pytest.approx([-9.0, 1.0, 11.0, 60.0])
    assert spread([], 10.0) == []
