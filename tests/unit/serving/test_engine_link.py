"""An API worker's view of an engine that dies: what it takes for the state of things."""

from headway.core.clock import ManualClock
from headway.serving.child import Absence
from headway.serving.engine_link import EngineLink
from headway.serving.ipc import Welcome


def welcome(epoch: int) -> Welcome:
    return Welcome(epoch=epoch, fingerprint="fake", context=64, capacity=4, vocab_size=32)


def test_a_worker_that_starts_while_the_engine_is_away_sees_it_come_back() -> None:
    link = EngineLink("inproc://nowhere", 0, ManualClock(), 16)
    link.went(Absence(1, "killed", 0.0, False))
    assert "restarted" in str(link.trouble())
    link._welcome(welcome(2))
    assert link.trouble() == "the model is still loading"  # until it tells its load
    assert link.absence_s == 0.0


def test_last_words_of_a_dead_engine_do_not_make_it_live() -> None:
    link = EngineLink("inproc://nowhere", 0, ManualClock(), 16)
    link._welcome(welcome(1))
    link.went(Absence(1, "killed", 0.0, False))
    link._welcome(welcome(1))
    assert "restarted" in str(link.trouble())
    link._welcome(welcome(2))
    assert link.absence_s == 0.0 and link.restarts == 1
