"""The pure parts of benchmarks/, and its simulation."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))

import burst
import loop
import loop_simulate
import overload
import report
import server
import stutter_rounds

from headway.bench.load_try import Try


@pytest.mark.parametrize(
    ("capacity", "found", "tried"),
    [
        (4.2, 4.0, [3.0, 3.5, 4.0, 4.5]),
        (3.0, 3.0, [3.0, 3.5]),
        (1.9, 1.5, [3.0, 2.5, 2.0, 1.5]),
        (0.1, None, [3.0, 2.5, 2.0, 1.5, 1.0, 0.5]),
    ],
)
def test_search_finds_the_last_rate_that_holds(capacity: float, found: float | None, tried: list[float]) -> None:
    asked: list[float] = []

    def holds(rate: float) -> bool:
        asked.append(rate)
        return rate <= capacity

    assert overload.search(holds, 3.0, 0.5) == found
    assert asked == tried


def point(good_per_s: float, refusal_ms: float | None) -> overload.Point:
    return overload.Point(3.0, 3.0, good_per_s, 0.5, 0.98, 100.0, 200.0, 30.0, 5, refusal_ms, 1.0)


def test_overload_is_judged_by_what_was_good_at_capacity() -> None:
    loads = {1: point(4.0, None), 2: point(3.7, 50.0), 4: point(3.1, 51.0)}
    missed = [need.what for need in overload.needs(loads) if not need.met]
    assert missed == ["4x: good/s, as a share of that at capacity", "4x: refusals, p99 ms"]


def test_what_could_not_be_measured_is_missed() -> None:
    assert report.Need("x", 1.0, 1.0).met and report.Need("x", 1.0, 1.0, least=True).met
    assert not report.Need("x", 1.1, 1.0).met and not report.Need("x", 0.9, 1.0, least=True).met
    assert not report.Need("x", None, 1.0).met


def test_metrics_without_labels_are_read() -> None:
    text = '# HELP a b\na_total 3.0\nb_total{outcome="stop"} 4.0\n\nheadway_ready 1.0\n'
    assert server.parse_metrics(text) == {"a_total": 3.0, "headway_ready": 1.0}


def test_gaps_lie_where_they_were() -> None:
    attempt = Try(0.0, chat=True)
    for at in (1.0, 1.5, 3.0, 3.25):
        attempt.stream.feed(b'data: {"choices":[{"delta":{"content":"x"}}]}\n\n', at)
    gaps = list(stutter_rounds.gaps_of(attempt))
    assert gaps == [(1.0, 0.5), (1.5, 1.5), (3.0, 0.25)]
    assert stutter_rounds.overlapping(gaps, 1.75, 2.0) == [1.5]
    assert stutter_rounds.overlapping(gaps, 0.0, 9.0) == [0.5, 1.5, 0.25]
    assert stutter_rounds.overlapping(gaps, 3.25, 9.0) == []


def test_bins_are_rates() -> None:
    assert burst.binned([0.0, 0.5, 1.9, 2.0, 7.0], end=5.0, width=2.0) == [1.5, 0.5, 0.0]


def test_simulated_requests_all_end_once() -> None:
    result = loop_simulate.simulate(loop_simulate.SHORT, 300)
    assert result.outcomes is not None and sum(result.outcomes.values()) == 300
    assert result.outcomes["length"] > 200 and result.outcomes["cancelled"] > 0
    assert result.simulated_s > 0 and result.tokens > 300


def test_the_stage_stays_as_full_as_stated() -> None:
    stage = loop.Stage(loop.Crowd("", running=16, waiting=50, bound_ms=1.0))
    ended = sum(stage.step()[2] for _ in range(250))
    assert ended > 0
    assert len(stage.scheduler.running) + len(stage.scheduler.waiting) == 66
    assert len(stage.scheduler.running) >= 15
    stage.scheduler.check_integrity()
