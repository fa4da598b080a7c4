"""The examples in deploy/ fit the defaults that they were written for."""

import re
from pathlib import Path

import pytest

from headway.core.config import ServerSettings
from headway.delivery.api_process import CLOSE_S
from headway.delivery.connections import MOST_REFUSED, RESERVE
from headway.serving.supervisor import EXIT_GRACE_S

DEPLOY = Path(__file__).parents[2] / "deploy"
SERVER = ServerSettings()
END_S = SERVER.drain_s + max(EXIT_GRACE_S, CLOSE_S)


def number(file: str, pattern: str) -> int:
    found = re.findall(pattern, (DEPLOY / file).read_text())
    assert found, (file, pattern)
    return min(map(int, found))


@pytest.mark.parametrize(
    ("file", "pattern", "before"),
    [
        ("headway.service", r"TimeoutStopSec=(\d+)\n", 0),
        ("Dockerfile", r"--stop-timeout (\d+)", 0),
        ("kubernetes.yaml", r"terminationGracePeriodSeconds: (\d+)\n", 5),
    ],
)
def test_whoever_stops_it_waits_for_the_drain(file: str, pattern: str, before: int) -> None:
    assert number(file, pattern) > END_S + before
    assert not before or number(file, r"command: \[sleep, \"(\d+)\"\]") == before


@pytest.mark.parametrize(
    ("file", "pattern"), [("headway.service", r"LimitNOFILE=(\d+)"), ("Dockerfile", r"nofile=(\d+)")]
)
def test_there_are_files_for_all_connections(file: str, pattern: str) -> None:
    assert number(file, pattern) >= SERVER.max_connections + RESERVE + MOST_REFUSED


def test_nginx_lets_go_before_headway_does_and_waits_longer_than_it_is_silent() -> None:
    assert number("nginx.conf", r"keepalive_timeout (\d+)s") < SERVER.idle_connection_s
    assert number("nginx.conf", r"proxy_read_timeout (\d+)s") > 2 * SERVER.keep_alive_s
    assert number("nginx.conf", r"client_max_body_size (\d+)m") << 20 == SERVER.max_body_bytes
