"""Fixtures of every kind of test."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import Phase, settings

from headway.model.source import resolve

# Without the phase that explains a failure, which traces every line and so makes properties several times slower.
settings.register_profile("headway", phases=set(Phase) - {Phase.explain}, deadline=None)
settings.load_profile("headway")


@pytest.fixture(scope="session", autouse=True)
def interrupts() -> Iterator[None]:
    """A shell that starts the tests in the background has them, and what they start, ignore Ctrl-C."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="session")
def default_model() -> Path:
    """The default model's GGUF file, fetched once per machine."""
    return resolve(None, show_progress=False)


@pytest.fixture(scope="session")
def parity_fixtures() -> Path:
    """Tiny models of each family and what transformers and llama.cpp answer on them."""
    return Path(__file__).parent / "parity" / "fixtures"
