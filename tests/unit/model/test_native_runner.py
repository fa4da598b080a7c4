"""The native runner's own duties; what it computes is checked in tests/parity."""

from array import array
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from headway.core.config import EngineSettings
from headway.core.errors import ModelError
from headway.core.runner import Batch, Opening, Work
from headway.core.sampling import Sampling
from headway.model.architectures.registry import architecture_of
from headway.model.checkpoint import open_checkpoint
from headway.model.fingerprint import fingerprint
from headway.model.load import load_runner
from headway.model.native_runner import NativeRunner

GREEDY = Sampling(max_tokens=1, temperature=0.0)
SETTINGS = EngineSettings(threads=1, kv_memory_mb=4, max_sequences=4)


@pytest.fixture
def model(parity_fixtures: Path) -> Path:
    return parity_fixtures / "hf" / "qwen2"


@pytest.fixture
def runner(model: Path) -> Iterator[NativeRunner]:
    made = load_runner(model, SETTINGS)
    yield made
    made.close()


def work(slot: int, *tokens: int) -> Work:
    return Work(slot, 0, array("I", tokens), (array("I", [slot]),), True)


def opening(slot: int, sampling: Sampling = GREEDY) -> Opening:
    return Opening(slot, sampling, array("I", [1, 2, 3]), 3)


def test_a_request_that_the_core_refuses_fails_alone(runner: NativeRunner) -> None:
    bad = Sampling(max_tokens=1, top_k=2**40)
    runner.submit(Batch([work(0, 1, 2, 3), work(1, 1, 2, 3)], [opening(0, bad), opening(1)]))
    refused, good = runner.collect().sampled
    assert refused is not None and refused.error is not None
    assert good is not None and good.error is None
    runner.submit(Batch([work(1, 1, 2, 3)], [opening(1)]))
    assert runner.collect().sampled == [good]


def test_a_result_waits_for_whoever_was_interrupted(runner: NativeRunner) -> None:
    runner.submit(Batch([work(0, 1, 2, 3)], [opening(0)]))
    with pytest.raises(RuntimeError, match="collected"):
        runner.submit(Batch([]))
    assert runner.collect().sampled[0] is not None
    with pytest.raises(RuntimeError, match="without submit"):
        runner.collect()


def test_settings_that_cannot_be(model: Path) -> None:
    with pytest.raises(ModelError, match="exceeds the model's context"):
        load_runner(model, SETTINGS.model_copy(update={"context": 10_000}))


def test_the_fingerprint_tells_models_apart(model: Path) -> None:
    checkpoint = open_checkpoint(model)
    architecture = architecture_of(checkpoint)
    spec = architecture.spec(checkpoint)
    weights = list(architecture.weights(checkpoint, spec))
    base = fingerprint(spec, weights)
    assert base == fingerprint(architecture.spec(checkpoint), weights)
    assert base != fingerprint(replace(spec, norm_eps=spec.norm_eps * 2), weights)
    assert base != fingerprint(replace(spec, inv_freq=spec.inv_freq * 2), weights)
    assert base != fingerprint(spec, weights[:-1])
