"""Arrival processes have the rates they state, and a seed fixes them."""

import itertools
import random
from pathlib import Path

import pytest

from headway.bench.load_arrivals import Arrival, Burst, poisson, read_trace
from headway.core.errors import InvalidRequest

AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.6805900,374,44
2023-11-16 18:15:50.6805900,396,109
"""
MOONCAKE = """{"timestamp": 3000, "input_length": 6758, "output_length": 500, "hash_ids": [0, 1]}
{"timestamp": 1000, "input_length": 20, "output_length": 3, "hash_ids": [0]}
"""


def times(pieces: list[tuple[float, float]], seed: int, until: float) -> list[float]:
    arrivals = (arrival.at for arrival in poisson(pieces, random.Random(seed)))
    return list(itertools.takewhile(lambda at: at < until, arrivals))


def within(count: int, expected: float) -> bool:
    """Five standard deviations of a Poisson count."""
    return abs(count - expected) < 5 * expected**0.5


def test_poisson() -> None:
    drawn = times([(float("inf"), 10.0)], seed=1, until=1000)
    assert within(len(drawn), 10_000)
    assert drawn == sorted(drawn) == times([(float("inf"), 10.0)], seed=1, until=1000)
    assert drawn[:5] != times([(float("inf"), 10.0)], seed=2, until=1000)[:5]
    gaps = [b - a for a, b in itertools.pairwise(drawn)]
    assert abs(sum(gap > 0.1 for gap in gaps) / len(gaps) - 0.3679) < 0.03  # e^-1, as an exponential has it


def test_burst_then_half() -> None:
    pieces = list(itertools.islice(Burst.parse("4:50").pieces(10.0, start=100.0), 3))
    drawn = times(pieces, seed=3, until=1150)
    assert within(sum(at < 100 for at in drawn), 1000)
    assert within(sum(100 <= at < 150 for at in drawn), 2000)
    assert within(sum(at >= 150 for at in drawn), 5000)


def test_periodic_bursts() -> None:
    drawn = times(list(itertools.islice(Burst.parse("3:10:40").pieces(8.0, start=0.0), 200)), seed=3, until=2000)
    assert within(sum(at % 40 < 10 for at in drawn), 24 * 500)
    assert within(sum(at % 40 >= 10 for at in drawn), 4 * 1500)


@pytest.mark.parametrize("text", ["4", "a:b", "4:0", "-1:5", "4:5:5", "1:2:3:4", "nan:1", "4:inf"])
def test_wrong_bursts(text: str) -> None:
    with pytest.raises(InvalidRequest):
        Burst.parse(text)


def test_traces(tmp_path: Path) -> None:
    azure, mooncake = tmp_path / "azure.csv", tmp_path / "mooncake.jsonl"
    azure.write_text(AZURE)
    mooncake.write_text(MOONCAKE)
    assert read_trace(azure) == [Arrival(0.0, 374, 44), Arrival(4.0, 396, 109)]
    assert read_trace(azure, speed=2) == [Arrival(0.0, 374, 44), Arrival(2.0, 396, 109)]
    assert read_trace(mooncake, length_scale=0.1) == [Arrival(0.0, 2, 1), Arrival(2.0, 676, 50)]


@pytest.mark.parametrize(
    ("name", "text"), [("a.csv", ""), ("a.csv", "x,y\n1,2\n"), ("a.jsonl", "{}\n"), ("a.txt", "no")]
)
def test_wrong_traces(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(InvalidRequest):
        read_trace(tmp_path / name)
    with pytest.raises(InvalidRequest):
        read_trace(tmp_path / "missing")
