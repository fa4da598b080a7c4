from headway.core.config import BatchingSettings
from headway.scheduling.policy import ContinuousPolicy, DynamicPolicy, StaticPolicy, make_policy


def test_continuous_has_a_seat_whenever_a_slot_is_free() -> None:
    policy = ContinuousPolicy(4)
    assert [policy.seats(0.0, running, running, 9, 0.0) for running in (0, 3, 4)] == [4, 1, 0]
    assert policy.seats(0.0, 4, 3, 9, 0.0) == 1  # one of them makes room
    assert policy.next_ask(3, 1, 5.0) == 5.0 and policy.next_ask(4, 1, 5.0) is None


def test_dynamic_waits_for_its_window_from_the_oldest_arrival() -> None:
    policy = DynamicPolicy(4, 0.05)
    assert policy.seats(1.04, 0, 0, 2, 1.0) == 0
    assert policy.next_ask(0, 2, 1.0) == 1.05
    assert policy.seats(1.05, 0, 0, 2, 1.0) == 2


def test_a_full_batch_does_not_wait() -> None:
    policy = DynamicPolicy(4, 0.05)
    assert policy.next_ask(0, 5, 1.0) == 1.0
    assert policy.seats(1.0, 0, 0, 5, 1.0) == 4


def test_members_may_join_over_several_steps_but_nobody_else() -> None:
    policy = DynamicPolicy(3, 0.05)
    assert policy.seats(1.0, 0, 0, 3, 1.0) == 3
    policy.joined()
    assert policy.seats(1.1, 1, 1, 2, 1.0) == 2
    policy.joined()
    policy.joined()
    assert policy.seats(9.0, 3, 3, 7, 1.0) == 0 and policy.next_ask(3, 7, 1.0) is None


def test_a_cancelled_member_leaves_no_seat() -> None:
    policy = DynamicPolicy(3, 0.05)
    assert policy.seats(1.0, 0, 0, 3, 1.0) == 3
    policy.joined()
    assert policy.seats(1.0, 1, 1, 1, 1.0) == 1  # one of the two others is gone ...
    policy.joined()
    assert policy.seats(1.0, 2, 2, 4, 1.0) == 0  # ... and whoever comes now waits for the next batch


def test_static_waits_for_exactly_its_batch_or_for_patience() -> None:
    policy = StaticPolicy(4, 2.0)
    assert policy.seats(2.9, 0, 0, 3, 1.0) == 0
    assert policy.seats(2.9, 0, 0, 4, 1.0) == 4
    assert StaticPolicy(4, 2.0).seats(3.0, 0, 0, 3, 1.0) == 3


def test_room() -> None:
    policy = DynamicPolicy(4, 0.05)
    assert (policy.room(0), policy.room(1)) == (4, 0)
    assert ContinuousPolicy(4).room(3) == 1


def test_tuning_sets_the_limit_of_continuous_batching_only() -> None:
    policy, dynamic = ContinuousPolicy(8), DynamicPolicy(4, 0.05)
    for chosen in (policy, dynamic):
        chosen.set_limit(3)
    assert (policy.seats(0.0, 2, 2, 9, 0.0), policy.room(2), policy.next_ask(3, 1, 5.0)) == (1, 1, None)
    assert dynamic.seats(0.0, 0, 0, 9, 0.0) == 4
    policy.set_limit(100)
    assert policy.seats(0.0, 0, 0, 9, 0.0) == 8  # there are no more slots


def test_make_policy() -> None:
    kinds = {"continuous": ContinuousPolicy, "dynamic": DynamicPolicy, "static": StaticPolicy}
    for name, kind in kinds.items():
        assert isinstance(make_policy(BatchingSettings(policy=name), 4), kind)
    assert make_policy(BatchingSettings(policy="static", max_batch=16), 4).room(0) == 4
