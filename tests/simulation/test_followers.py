"""Several choices of one prompt: one computes it, the others wait for it."""

from msgspec import structs
from rig import Rig, make_request, make_settings

from headway.core.events import Finish
from headway.model.fake_runner import default_info

PROMPT = [(7 * i) % 200 + 3 for i in range(41)]  # ten whole blocks and a token


def rig_with(followers: int) -> Rig:
    """A leader whose prompt needs nine steps, its followers, and slots for all of them and two more."""
    rig = Rig(default_info(blocks=200, block_size=4, slots=followers + 3, context=90), make_settings(step_tokens=5))
    leader = make_request(1, PROMPT, max_tokens=8)
    rig.submit(leader, *(structs.replace(leader, id=2 + i, leader=1) for i in range(followers)))
    return rig


def begun(rig: Rig) -> set[int]:
    return {sequence.id for sequence in rig.scheduler.running}


def test_followers_wait_for_the_leader_and_take_its_prompt_from_the_cache() -> None:
    rig = rig_with(followers=3)
    for _ in range(9):
        rig.step()
        assert begun(rig) == {1}
    rig.step()
    assert begun(rig) == {1, 2, 3, 4}
    rig.run()
    rig.check_stories()
    assert [rig.stories[i].emissions[0].cached_tokens for i in (2, 3, 4)] == [40, 40, 40]


def test_a_younger_request_takes_what_the_leader_leaves_but_does_not_go_before_followers_let_go() -> None:
    rig = rig_with(followers=2)
    rig.step()
    rig.submit(make_request(10, [5, 6], max_tokens=30))
    while 10 not in begun(rig):
        rig.step()  # the rig checks the order at each step
        assert begun(rig) <= {1, 10}
    rig.submit(make_request(11, [5, 6], max_tokens=2))
    while 11 not in begun(rig):
        rig.step()
    assert begun(rig) == {1, 2, 3, 10, 11}
    rig.run()
    rig.check_stories()


def test_the_first_follower_takes_over_from_a_leader_that_is_cancelled() -> None:
    rig = rig_with(followers=2)
    rig.step()
    rig.cancel(1)
    for _ in range(8):
        rig.step()
        assert begun(rig) == {2}
    rig.run()
    assert rig.stories[1].finish is Finish.CANCELLED
    rig.check_tokens(2), rig.check_tokens(3)
    assert [rig.stories[i].emissions[0].cached_tokens for i in (2, 3)] == [4, 40]
