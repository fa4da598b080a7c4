from rig import make_request

from headway.scheduling.deadlines import Deadlines
from headway.scheduling.sequence import Sequence


def sequence(serial: int, deadline: float | None) -> Sequence:
    return Sequence(make_request(serial, [1], deadline=deadline), serial, 9, frozenset())


def test_due_ones_earliest_first() -> None:
    deadlines = Deadlines()
    for serial, deadline in enumerate([3.0, None, 1.0, 2.0]):
        deadlines.add(sequence(serial, deadline))
    assert deadlines.next == 1.0
    assert list(deadlines.pop_due(2.0)) == [2, 3]
    assert deadlines.next == 3.0


def test_ended_ones_do_not_pile_up() -> None:
    deadlines, live = Deadlines(), sequence(0, 5.0)
    deadlines.add(live)
    for serial in range(1, 1000):
        deadlines.add(sequence(serial, 1e9))
        deadlines.compact([live], 1)
    assert len(list(deadlines.pop_due(1e10))) < 100
