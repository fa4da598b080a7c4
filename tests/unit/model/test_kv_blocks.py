"""How layers share blocks."""

from dataclasses import replace
from pathlib import Path

import pytest

from headway.model.architectures.registry import architecture_of
from headway.model.checkpoint import open_checkpoint
from headway.model.kv_blocks import layer_groups
from headway.model.spec import ModelSpec


@pytest.fixture(scope="module")
def spec(parity_fixtures: Path) -> ModelSpec:
    checkpoint = open_checkpoint(parity_fixtures / "hf" / "qwen2")
    return architecture_of(checkpoint).spec(checkpoint)


def with_windows(spec: ModelSpec, *windows: int) -> ModelSpec:
    return replace(spec, layers=len(windows), windows=windows)


def by_turns(layers: int, every: int, window: int = 512) -> tuple[int, ...]:
    """Every so-manieth layer sees all."""
    return tuple(window if (i + 1) % every else 0 for i in range(layers))


def test_uniform_models_have_one_group(spec: ModelSpec) -> None:
    for window in (0, 512):
        groups = layer_groups(with_windows(spec, *[window] * 7), 4096)
        assert (groups.layers, groups.windows) == ((tuple(range(7)),), (window,))


def test_windows_that_hide_nothing_are_none(spec: ModelSpec) -> None:
    assert layer_groups(with_windows(spec, 512, 0, 512), 512).windows == (0,)
    assert layer_groups(with_windows(spec, 512, 512), 300).windows == (0,)


@pytest.mark.parametrize(
    ("layers", "every", "windows", "size"),
    [
        (26, 2, (0, 512), 13),  # Gemma 2
        (26, 6, (0, *[512] * 6), 4),  # Gemma 3
        (34, 6, (0, *[512] * 6), 5),
        (48, 6, (0, *[512] * 5), 8),
        (62, 6, (0, *[512] * 5), 11),
        (3, 2, (0, 512, 512), 1),
    ],
)
def test_blocks_of_equal_size(spec: ModelSpec, layers: int, every: int, windows: tuple[int, ...], size: int) -> None:
    given = with_windows(spec, *by_turns(layers, every))
    groups = layer_groups(given, 4096)
    assert (groups.windows, groups.size) == (windows, size)
    assert sorted(layer for group in groups.layers for layer in group) == list(range(layers))
    for group, window in zip(groups.layers, groups.windows, strict=True):
        assert {given.windows[layer] for layer in group} == {window}


def test_three_windows(spec: ModelSpec) -> None:
    groups = layer_groups(with_windows(spec, 64, 0, 128, 64, 0, 128), 4096)
    assert (groups.layers, groups.windows) == (((1, 4), (0, 3), (2, 5)), (0, 64, 128))
