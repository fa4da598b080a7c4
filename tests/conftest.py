"""Fixtures of every kind of test."""

from pathlib import Path

import pytest

from headway.model.source import resolve


@pytest.fixture(scope="session")
def default_model() -> Path:
    """The default model's GGUF file, fetched once per machine."""
    return resolve(None, show_progress=False)


@pytest.fixture(scope="session")
def parity_fixtures() -> Path:
    """Tiny models of each family and what transformers and llama.cpp answer on them."""
    return Path(__file__).parent / "parity" / "fixtures"
