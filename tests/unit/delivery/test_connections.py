import resource
import subprocess
import sys

import pytest

from headway.delivery.connections import MOST_REFUSED, RESERVE

OTHERS = RESERVE + MOST_REFUSED
HARD = min(4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1])


@pytest.mark.parametrize(
    ("wanted", "possible", "soft"),
    [(100, 100, 100 + OTHERS), (20_000, HARD - OTHERS, HARD), (1, 1, 1 + OTHERS)],
    ids=["fits", "too many", "least"],
)
def test_as_many_connections_as_the_limit_of_open_files_allows(wanted: int, possible: int, soft: int) -> None:
    code = f"""
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (64, {HARD}))
from headway.delivery.connections import raise_open_files
print(raise_open_files({wanted}), *resource.getrlimit(resource.RLIMIT_NOFILE))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(possible), str(soft), str(HARD)]
    assert ("limit of open files" in done.stderr) == (possible < wanted)
