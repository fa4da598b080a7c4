"""Fixtures of the wire tests: servers on real sockets."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from server_rig import Rig, make_rig


@pytest.fixture(scope="session", autouse=True)
def cache_of_its_own(default_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Servers under test leave what they learn, and the responses they store, here: not with the user's own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("XDG_DATA_HOME", str(tmp_path_factory.mktemp("data")))
        yield


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    """A fast server that a module's tests share."""
    with make_rig() as made:
        yield made
        made.wait_idle()
