from rig import make_request

from headway.core.lane import Lane
from headway.scheduling.sequence import Sequence
from headway.scheduling.waiting import WaitingQueue


def test_oldest_first_whatever_the_order_of_adding() -> None:
    queue = WaitingQueue(aging=10.0)
    made = [
        Sequence(make_request(i, [1] * (i + 1), arrival=a), i, 9, frozenset()) for i, a in enumerate([2.0, 1.0, 1.0])
    ]
    for sequence in made:
        queue.add(sequence)
    assert [s.id for s in queue] == [1, 2, 0] and queue.oldest is made[1]
    assert (len(queue), queue.tokens(Lane.DEFAULT)) == (3, 6)
    queue.remove(made[2])
    assert [s.id for s in queue] == [1, 0] and queue.tokens(Lane.DEFAULT) == 3
