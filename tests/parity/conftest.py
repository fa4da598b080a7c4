"""Fixtures of the parity tests."""

from collections.abc import Iterator

import pytest
from oracle import ISAS, asking_for


@pytest.fixture(params=ISAS)
def isa(request: pytest.FixtureRequest) -> Iterator[None]:
    """Each instruction set of this processor in turn."""
    with asking_for(request.param):
        yield
