"""Fixtures of the wire tests: servers on real sockets."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from server_rig import Rig, make_rig


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    """A fast server that a module's tests share."""
    with make_rig() as made:
        yield made
        made.wait_idle()
