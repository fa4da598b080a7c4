"""The model of a step's time, on processes whose truth is known."""

import random

import pytest

from headway.scheduling.cost_model import CostModel, StepLoad, attended
from headway.scheduling.pace import LEAST_CHUNK, MARGIN, Pace

TRUTH = (3e-3, 2.5e-4, 4e-5, 3e-4)


def true_seconds(load: StepLoad, speed: float = 1.0) -> float:
    a, b, c, d = TRUTH
    return (a + b * (load.tokens - load.sequences) + c * load.context * 1e-3 + d * load.sequences) / speed


def mixed(chance: random.Random) -> StepLoad:
    """Some decodes, and in two of three steps a piece of a prompt."""
    decodes = chance.randrange(1, 33)
    chunk, start = chance.choice([0, 32, 128]), chance.randrange(1000)
    return StepLoad(decodes + chunk, decodes * chance.randrange(50, 600) + attended(start, chunk), decodes)


def taught(steps: int, noise: float = 0.05, outliers: float = 0.0, seed: int = 0) -> CostModel:
    model, chance = CostModel(), random.Random(seed)
    for _ in range(steps):
        load = mixed(chance)
        stall = 10.0 if chance.random() < outliers else 1.0
        model.observe(load, true_seconds(load) * max(0.2, chance.gauss(1, noise)) * stall)
    return model


@pytest.mark.parametrize("outliers", [0.0, 0.05])
@pytest.mark.parametrize("seed", range(5))
def test_learns_a_linear_truth_through_noise_and_outliers(seed: int, outliers: float) -> None:
    model, chance = taught(200, outliers=outliers, seed=seed), random.Random(seed + 100)
    errors = sorted(abs(model.predict(load) / true_seconds(load) - 1) for load in (mixed(chance) for _ in range(101)))
    assert errors[50] < 0.1
    assert model.median_error is not None
    assert model.median_error < 0.15


def test_one_stalled_step_moves_little_and_a_lasting_change_is_followed() -> None:
    model = taught(200)
    load = StepLoad(16, 16 * 200, 16)
    before = model.predict(load)
    model.observe(load, 100 * before)
    assert model.predict(load) < 1.2 * before
    for _ in range(150):
        model.observe(load, true_seconds(load, speed=0.4))
    assert model.predict(load) == pytest.approx(true_seconds(load, speed=0.4), rel=0.1)


def test_a_later_life_predicts_from_its_first_step() -> None:
    again = CostModel(taught(200).coefficients)
    chance = random.Random(5)
    loads = [mixed(chance) for _ in range(50)]
    assert sorted(abs(again.predict(load) / true_seconds(load) - 1) for load in loads)[25] < 0.1


@pytest.mark.parametrize("start", [0, 100, 5000])
def test_tokens_within_is_nearly_the_most_that_fits_once_costs_are_known(start: int) -> None:
    model = taught(300, noise=0.0)
    base = StepLoad(8, 8 * 100, 8)
    count = model.tokens_within(0.05, base, start)

    def with_chunk(n: int) -> float:
        return model.predict(StepLoad(base.tokens + n, base.context + attended(start, n), base.sequences))

    assert with_chunk(count) <= 0.05 < with_chunk(count + count // 3 + 4)
    unsure = CostModel(TRUTH)
    assert unsure.tokens_within(0.05, base, start, caution=1.0) < unsure.tokens_within(0.05, base, start)
    assert model.tokens_within(0.001, base, start) == 0


def test_pace_protects_decodes_and_lets_prompts_progress() -> None:
    pace = Pace(CostModel(TRUTH), gap_s=0.05)
    base = StepLoad(8, 800, 8)
    chunk = pace.chunk(base, 8, 0, budget=512)
    assert true_seconds(StepLoad(8 + chunk, 800 + attended(0, chunk), 8)) <= MARGIN * 0.05
    assert LEAST_CHUNK < chunk < 512
    assert pace.chunk(StepLoad(0, 0, 0), 0, 0, budget=512) == 512  # nobody waits for the step
    full = StepLoad(300, 100_000, 300)
    assert pace.chunk(full, 300, 0, budget=512) == LEAST_CHUNK
    assert pace.chunk(StepLoad(316, 100_000, 300), 300, 0, budget=512) == 0
    assert Pace(CostModel(TRUTH), gap_s=None).chunk(full, 300, 0, budget=212) == 212
