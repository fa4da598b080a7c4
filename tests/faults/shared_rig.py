"""A server that a module's tests share, which leaves what it stores and learns in a folder of its own."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from server_rig import Rig, make_rig


@contextmanager
def rig_in(folder: Path, **options: Any) -> Iterator[Rig]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        patch.setenv("XDG_DATA_HOME", str(folder / "data"))
        with make_rig(**options) as rig:
            yield rig
