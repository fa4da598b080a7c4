"""The engine's side of live settings, without engine and socket."""

import json
import logging
from typing import Any

import pytest

from headway.core.config import Settings
from headway.core.live_settings import live_json
from headway.serving.child import RELOAD
from headway.serving.ipc import Outbound, Reconfigure, Reconfigured, SettingsChanged
from headway.serving.settings_hub import SettingsHub


class Rig:
    def __init__(self) -> None:
        self.sent: list[tuple[int, Outbound]] = []
        self.stalled: set[int] = set()
        self.applied: list[Settings] = []
        self.fault: Exception | None = None
        self.hub = SettingsHub(Settings(), 1, self.send)

    def send(self, worker: int, message: Outbound) -> bool:
        if worker not in self.stalled:
            self.sent.append((worker, message))
        return worker not in self.stalled

    def apply(self, settings: Settings) -> None:
        if self.fault is not None:
            raise self.fault
        self.applied.append(settings)

    def ask(self, worker: int, **changes: Any) -> None:
        self.hub.answer(worker, Reconfigure(epoch=1, token=9, changes=json.dumps(changes)), self.apply)

    def versions(self) -> list[tuple[int, int]]:
        """(worker, version) of each message about settings."""
        return [(worker, message.version) for worker, message in self.sent if isinstance(message, SettingsChanged)]


def test_a_change_is_applied_and_told_to_all_before_the_answer(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    rig = Rig()
    for worker in (0, 1):
        rig.hub.greet(worker)
    rig.ask(1, promise={"itl_ms": 80})
    assert rig.applied == [rig.hub.current] and rig.hub.current.promise.itl_ms == 80
    assert rig.versions() == [(0, 0), (1, 0), (0, 1), (1, 1)]
    assert rig.sent[-1] == (1, Reconfigured(token=9))
    assert "through API worker 1: promise.itl_ms 50.0 -> 80.0" in caplog.text
    rig.ask(0, promise={"itl_ms": 80})  # the same again
    assert len(rig.applied) == 1 and rig.versions()[-1] == (1, 1) and rig.sent[-1] == (0, Reconfigured(token=9))
    rig.ask(0, queue={"max_requests": 3})  # beside the first
    assert (rig.hub.current.promise.itl_ms, rig.hub.current.queue.max_requests) == (80, 3)


@pytest.mark.parametrize(
    ("changes", "param"),
    [({"queue": {"max_requests": -1}}, "queue.max_requests"), ({"engine": {}}, "engine"), ({"x": 1}, "x")],
)
def test_a_refused_change_changes_nothing(changes: dict[str, Any], param: str) -> None:
    rig = Rig()
    before = rig.hub.current
    rig.ask(0, **changes)
    answer = rig.sent.pop()[1]
    assert isinstance(answer, Reconfigured) and answer.param == param and param in (answer.problem or "")
    assert not rig.sent and not rig.applied and rig.hub.current is before


def test_what_the_engine_cannot_do_is_refused() -> None:
    rig = Rig()
    rig.fault = ValueError("not with this model")
    rig.ask(0, queue={"max_requests": 1})
    assert rig.sent == [(0, Reconfigured(token=9, problem="not with this model"))]
    assert rig.hub.current.queue.max_requests == 1024
    rig.hub.answer(0, Reconfigure(epoch=1, token=1, changes="{"), rig.apply)
    assert isinstance(rig.sent[-1][1], Reconfigured) and rig.sent[-1][1].problem


def test_a_reload_supersedes_and_the_newest_counts(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig()
    rig.ask(0, promise={"itl_ms": 80}, queue={"max_requests": 3})
    for itl_ms in (10, 20):
        rig.hub.command(f"{RELOAD} {live_json(Settings(promise={'itl_ms': itl_ms}))}")  # type: ignore[arg-type]
    rig.hub.poll(rig.apply)
    rig.hub.poll(rig.apply)
    assert [settings.promise.itl_ms for settings in rig.applied] == [80, 20]
    assert rig.hub.current.queue.max_requests == 1024
    rig.hub.command(f"{RELOAD} {{")
    rig.hub.command("something else")
    rig.hub.poll(rig.apply)
    assert "settings not changed" in caplog.text and len(rig.applied) == 2


def test_who_does_not_read_is_told_later() -> None:
    rig = Rig()
    rig.hub.greet(0)
    rig.stalled = {0}
    rig.ask(1, queue={"max_requests": 3})
    rig.ask(1, queue={"max_requests": 4})
    rig.hub.tell([0])
    assert rig.versions() == [(0, 0)]
    rig.stalled = set()
    rig.hub.tell([0])
    rig.hub.tell([0])
    assert rig.versions() == [(0, 0), (0, 2)]
    rig.hub.greet(0)  # again: it may have been restarted
    assert rig.versions() == [(0, 0), (0, 2), (0, 2)]
