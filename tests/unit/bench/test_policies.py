"""One trace, three policies: the arrivals are the same, and time is the clock's."""

from pathlib import Path

import pytest

from headway.bench.load_arrivals import Arrival
from headway.bench.policies import LOADS, POLICIES, SEATS, replay, seated, sweep
from headway.bench.policies_trace import MEAN_TOKENS, at_rate, built_in, from_file
from headway.core.clock import ManualClock
from headway.core.config import BatchingSettings, EngineSettings, PromiseSettings, Settings
from headway.core.errors import InvalidRequest
from headway.core.runner import Batch
from headway.model.fake_runner import FakeRunner, default_info

SETTINGS = Settings(
    engine=EngineSettings(threads=1),
    batching=BatchingSettings(window_ms=50.0, max_wait_ms=2000.0),
    promise=PromiseSettings(ttft_ms=1.0, itl_ms=1.0, total_s=0.001, queue_s=0.001),
)


def step_time(batch: Batch) -> float:
    return 0.004 + 0.0005 * batch.token_count


def fake() -> tuple[FakeRunner, ManualClock]:
    clock = ManualClock(100.0)
    return FakeRunner(default_info(), clock=clock, step_time=step_time), clock


def test_the_built_in_trace_is_the_same_everywhere_and_one_request_a_second() -> None:
    trace = built_in(200)
    assert trace == built_in(200) != built_in(200, seed=1)
    assert trace[0].at == 0.0 and trace[-1].at == pytest.approx(199.0)
    assert {row.input_tokens for row in trace} == {8, 16, 32, 64, 128}
    assert {row.output_tokens for row in trace} == {4, 8, 16, 32, 64}
    mean = sum((row.input_tokens or 0) + (row.output_tokens or 0) for row in trace) / 200
    assert mean == pytest.approx(MEAN_TOKENS, rel=0.1)
    faster = at_rate(trace, 4.0)
    assert [row.at for row in faster] == pytest.approx([row.at / 4 for row in trace])
    assert [row.output_tokens for row in faster] == [row.output_tokens for row in trace]


def test_a_file_is_scaled_to_the_same_work(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    rows = ["2023-11-16 18:00:01.0,1000,100", "2023-11-16 18:00:03.0,500,200", "2023-11-16 18:00:02.0,9,9"]
    path.write_text("\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *rows]))
    trace = from_file(path, 3, longest=1000)
    assert [row.at for row in trace] == [0.0, 1.0, 2.0]
    assert sum((row.input_tokens or 0) + (row.output_tokens or 0) for row in trace) == pytest.approx(225, abs=3)
    assert trace[1].input_tokens == trace[1].output_tokens == 1
    assert all((row.input_tokens or 0) <= 20 for row in from_file(path, 3, longest=40))
    with pytest.raises(InvalidRequest, match="two requests"):
        from_file(path, 1, longest=1000)


def test_latency_counts_from_when_a_request_was_due() -> None:
    """One seat's worth of arithmetic: alone, then one that comes while the first one's step runs."""
    runner, clock = fake()
    trace = [Arrival(0.0, 10, 1), Arrival(0.001, 10, 1), Arrival(5.0, 10, 2)]
    run = replay(runner, seated(SETTINGS, "continuous"), trace, clock, clock.advance)
    assert run.tokens == 4
    assert run.latencies == pytest.approx(sorted([0.009, 0.017, 0.0135]))
    assert run.seconds == pytest.approx(5.0135)


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_serves_everything_whatever_the_promise(policy: str) -> None:
    runner, clock = fake()
    trace = at_rate(built_in(12), 10.0)
    run = replay(runner, seated(SETTINGS, policy), trace, clock, clock.advance)
    assert run.tokens == sum(row.output_tokens or 0 for row in trace)
    assert len(run.latencies) == 12 and run.latencies[0] > 0


def test_static_waits_for_its_batch_or_its_patience() -> None:
    runner, clock = fake()
    trace = [Arrival(0.0, 10, 1)] * (SEATS - 1)
    waited = replay(runner, seated(SETTINGS, "static"), trace, clock, clock.advance)
    assert waited.latencies[0] == pytest.approx(2.0, abs=0.1)
    whole = replay(runner, seated(SETTINGS, "static"), [Arrival(0.0, 10, 1)] * SEATS, clock, clock.advance)
    assert whole.latencies[-1] < 0.1


def test_a_sweep_has_a_point_for_every_load_and_policy_and_continuous_is_fastest() -> None:
    runner, clock = fake()
    said: list[str] = []
    capacity, points = sweep(runner, SETTINGS, built_in(16), 1, said.append, clock, clock.advance)
    assert [(p.load, p.policy) for p in points] == [(load, policy) for load in LOADS for policy in POLICIES]
    assert all(p.requests_per_s == pytest.approx(p.load * capacity) for p in points)
    busiest = {p.policy: p for p in points if p.load == LOADS[-1]}
    assert busiest["continuous"].tokens_per_s == max(p.tokens_per_s for p in busiest.values())
    assert busiest["continuous"].p50_s == min(p.p50_s for p in busiest.values())
    assert all(0 < p.p50_s <= p.p99_s for p in points)
    assert len(said) == 1 + len(LOADS)
