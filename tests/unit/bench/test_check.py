"""What `headway check` measures, says and advises."""

from typing import Any

import pytest

from headway.bench.capacity import Limits, Shape
from headway.bench.check import FULL, fit, five_answers, judge
from headway.bench.check_measure import ENOUGH, measure
from headway.bench.check_table import print_check
from headway.core.clock import ManualClock
from headway.core.config import BatchingSettings, EngineSettings, PromiseSettings, Settings
from headway.core.runner import RunnerInfo
from headway.model.fake_runner import FakeRunner, default_info
from headway.scheduling.cost_model import CostModel, StepLoad

COSTS = CostModel((4e-3, 6e-4, 3e-5, 8e-4))
LIMITS = Limits(sequences=256, step_tokens=512, kv_tokens=40_000, context=8192)
SHAPE = Shape(128, 128)


def settings(kv_memory_mb: int = 1024, policy: Any = "continuous", **promise: Any) -> Settings:
    return Settings(
        engine=EngineSettings(threads=2, kv_memory_mb=kv_memory_mb),
        batching=BatchingSettings(policy=policy),
        promise=PromiseSettings(**promise),
    )


@pytest.mark.parametrize(
    "info",
    [
        default_info(context=2048, blocks=512),
        default_info(context=64, blocks=8, slots=4, max_batch_tokens=16),  # nothing of the mix fits whole
    ],
)
def test_it_learns_what_the_runner_takes(info: RunnerInfo) -> None:
    clock, costs = ManualClock(), CostModel()
    runner = FakeRunner(info, clock=clock, step_time=lambda batch: COSTS.predict(StepLoad.of(batch)))
    said: list[str] = []
    engine = measure(runner, settings(ttft_ms=1.0, total_s=0.001), costs, clock, said.append)
    assert costs.observed >= ENOUGH and clock.now() < 60
    assert not engine.has_work and len(said) == 5
    for load in (StepLoad(1, 30, 1), StepLoad(4, 100, 4), StepLoad(16, 200, 1)):
        assert costs.predict(load) == pytest.approx(COSTS.predict(load), rel=0.05)


def test_a_slow_model_is_not_measured_forever() -> None:
    clock, costs = ManualClock(), CostModel()
    info = default_info(context=2048, blocks=512)
    measure(FakeRunner(info, clock=clock, step_time=lambda _: 2.0), settings(), costs, clock, lambda _: None)
    assert costs.observed < 2 * ENOUGH


def test_five_answers_whatever_was_answered() -> None:
    for promise in (PromiseSettings(itl_ms=0.0), PromiseSettings(ttft_ms=500.0, itl_ms=50.0, total_s=9.0, queue_s=5.0)):
        answers = {answer.setting: answer for answer in five_answers(promise)}
        assert list(answers) == ["ttft_ms", "itl_ms", "total_s", "queue_s", "on_stream_drop"]
        for name, answer in answers.items():
            assert answer.value == getattr(promise, name)
            assert answer.binds == bool(answer.value)
            assert answer.meaning[0].isupper() and answer.meaning.endswith(".") and "{" not in answer.meaning
    assert "500 ms" in answers["ttft_ms"].meaning and "refused" in answers["itl_ms"].meaning


def test_a_promise_that_can_be_kept_has_no_problems() -> None:
    report = judge(COSTS, settings(ttft_ms=500.0, total_s=120.0), SHAPE, LIMITS)
    assert not report.problems and not report.alerts
    assert report.load.requests_per_s > 0
    assert sum(report.measured.seconds.values()) == pytest.approx(sum(COSTS.coefficients))


@pytest.mark.parametrize(
    ("promise", "shape", "limits", "said"),
    [
        ({"itl_ms": 3.0}, SHAPE, LIMITS, "itl_ms = 3"),
        ({"ttft_ms": 4.0}, SHAPE, LIMITS, "ttft_ms = 4"),
        ({"total_s": 0.5}, SHAPE, LIMITS, "total_s = 0.5"),
        ({}, Shape(9000, 10), LIMITS, "context"),
        ({}, SHAPE, Limits(256, 512, 200, 8192), "engine.kv_memory_mb"),
    ],
)
def test_what_not_even_one_request_gets_is_named(
    promise: dict[str, float], shape: Shape, limits: Limits, said: str
) -> None:
    problems = judge(COSTS, settings(**promise), shape, limits).problems
    assert len(problems) == 1 and said in problems[0]


@pytest.mark.parametrize("promise", [{"itl_ms": 3.0}, {"ttft_ms": 4.0}, {"total_s": 0.5}])
def test_its_advice_helps(promise: dict[str, float]) -> None:
    (name,) = promise
    advice = judge(COSTS, settings(**promise), SHAPE, LIMITS).problems[0]
    better = float(advice.split("Promise at least ")[1].split(",")[0])
    assert not judge(COSTS, settings(**{name: better}), SHAPE, LIMITS).problems


def test_a_full_pool_is_an_alert_with_the_memory_that_would_do() -> None:
    tight = Limits(256, 512, 12 * SHAPE.total, 8192)
    report = judge(COSTS, settings(kv_memory_mb=70, ttft_ms=500.0), SHAPE, tight)
    assert report.kv.share > FULL and not report.problems
    assert f"engine.kv_memory_mb = {report.kv.enough_mb}" in report.alerts[0]
    grown = Limits(256, 512, tight.kv_tokens * report.kv.enough_mb // 70, 8192)
    assert fit(grown, SHAPE, report.kv.streams, report.kv.enough_mb).share <= FULL + 0.01
    assert report.load.peak_streams <= 12


def test_what_only_deserves_a_word_is_an_alert() -> None:
    alerts = judge(COSTS, settings(policy="static", ttft_ms=200.0), Shape(2000, 20), LIMITS).alerts
    assert any("counts as long" in alert for alert in alerts)
    assert any("batching.policy = static" in alert for alert in alerts)


def test_what_is_printed_says_what_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    print_check(judge(COSTS, settings(ttft_ms=500.0), SHAPE, LIMITS), as_json=False)
    good = capsys.readouterr().out
    assert "predicted" in good and "ttft_ms = 500" in good and "can be kept" in good
    print_check(judge(COSTS, settings(itl_ms=1.0), SHAPE, LIMITS), as_json=False)
    bad = capsys.readouterr().out
    assert "impossible" in bad and "itl_ms = 1" in bad and "can be kept" not in bad
