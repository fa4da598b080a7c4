"""When the load is told: at every change at once, and seldom while streams merely go on."""

from itertools import pairwise

from rig import Rig, make_request

from headway.core.request import request_id
from headway.scheduling.engine import LOAD_S

STEP_S = 0.01


def test_the_load_is_told_at_changes_and_seldom_between() -> None:
    rig = Rig(step_time=lambda batch: STEP_S)
    rig.submit(
        make_request(1, [5, 6, 7], max_tokens=60, ignore_eos=True),
        make_request(2, [5, 8], max_tokens=100, ignore_eos=True),
    )
    rig.run()
    told = [message.load for _, message in rig.messages]
    for (_, message), load in zip(rig.messages, told, strict=True):
        if any(emission.started or emission.finish is not None for emission in message.emissions):
            assert load is not None
    times = [load.time for load in told if load is not None]
    assert all(later - earlier <= LOAD_S + STEP_S + 1e-9 for earlier, later in pairwise(times))
    steady = len(rig.messages) - len(times)
    assert steady > 0.8 * len(rig.messages)


def test_each_worker_is_told() -> None:
    rig = Rig(step_time=lambda batch: STEP_S)
    rig.submit(
        make_request(request_id(0, 1), [5, 6], max_tokens=40), make_request(request_id(1, 1), [7, 8], max_tokens=40)
    )
    rig.run()
    for worker in (0, 1):
        loads = [message.load for of, message in rig.messages if of == worker]
        assert loads[0] is not None and loads[-1] is not None
        times = [load.time for load in loads if load is not None]
        assert all(later - earlier <= LOAD_S + STEP_S + 1e-9 for earlier, later in pairwise(times))
