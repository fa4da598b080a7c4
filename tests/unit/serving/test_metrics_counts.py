from pathlib import Path

from headway.observability.metrics import EngineState, Metrics


def lines(text: bytes) -> dict[str, float]:
    pairs = (line.rsplit(" ", 1) for line in text.decode().splitlines() if line and line[0] != "#")
    return {name: float(value) for name, value in pairs}


def test_histograms() -> None:
    metrics = Metrics()
    for seconds in (0.0001, 0.0005, 0.012, 700.0):
        metrics.gap(seconds)
    metrics.first_token(0.2)
    seen = lines(metrics.render(None, EngineState(False, 2, "open", 1)))
    name = "headway_inter_token_seconds"
    assert seen[name + '_bucket{le="0.0005"}'] == 2  # an edge belongs to its own bucket
    assert seen[name + '_bucket{le="0.015"}'] == 3
    assert seen[name + '_bucket{le="+Inf"}'] == seen[name + "_count"] == 4
    assert abs(seen[name + "_sum"] - 700.0126) < 1e-9
    assert seen["headway_time_to_first_token_seconds_count"] == 1
    assert seen["headway_request_seconds_count"] == 0
    assert seen["headway_ready"] == 0


def test_workers_add_up_and_a_restart_counts_on(tmp_path: Path) -> None:
    first, second = Metrics(tmp_path, 0), Metrics(tmp_path, 1)
    first.finished("stop", 3, 4)
    second.finished("stop", 5, 6)
    second.live(2)
    again = Metrics(tmp_path, 1)
    again.finished("failed", 1, 1)
    seen = lines(first.render(None, EngineState(True, 0, "closed", 0)))
    assert seen['headway_requests_total{outcome="stop"}'] == 2
    assert seen["headway_prompt_tokens_total"] == 9
    assert seen["headway_requests_live"] == 0
