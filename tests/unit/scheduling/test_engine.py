import pytest
from rig import EPOCH, Rig, make_request, make_settings

from headway.core.clock import ManualClock
from headway.core.config import QueueSettings
from headway.core.errors import ModelError
from headway.core.events import Finish
from headway.core.request import Cancel, request_id
from headway.model.fake_runner import FakeRunner, default_info
from headway.scheduling.engine import Engine


def test_one_message_per_worker_and_step() -> None:
    rig = Rig()
    rig.submit(*(make_request(request_id(worker, 1), [5], max_tokens=2) for worker in (0, 3)))
    rig.run()
    rig.check_stories()
    assert [worker for worker, _ in rig.messages] == [0, 3] * 3


def test_started_goes_out_while_the_step_computes_and_tokens_before_the_next() -> None:
    rig = Rig(step_time=lambda batch: 1.0)
    rig.submit(make_request(1, [5], max_tokens=2, ignore_eos=True))
    seen = []
    rig.runner.during = lambda: seen.append((rig.clock.now(), len(rig.messages), len(rig.stories[1].tokens)))
    rig.step()
    rig.step()
    assert seen == [(0.0, 1, 0), (1.0, 2, 1)]
    assert rig.stories[1].finish is Finish.LENGTH, "the last tokens do not wait for a step that never comes"
    assert not rig.engine.has_work and rig.engine.next_wake(2.0) is None


def test_messages_of_another_life_are_dropped() -> None:
    rig = Rig()
    rig.engine.submit(make_request(1, [5], epoch=EPOCH + 1))
    assert not rig.step() and not rig.engine.has_work
    rig.submit(make_request(1, [5]))
    rig.engine.submit(Cancel(id=1, epoch=EPOCH - 1, reason="old"))
    rig.run()
    rig.check_stories()


def test_refusal_says_when_to_return() -> None:
    rig = Rig(settings=make_settings(sequences=1, queue=QueueSettings(max_requests=1, max_tokens=100)))
    rig.submit(*(make_request(serial, [5]) for serial in range(3)))
    rig.run()
    refused = rig.stories[2].emissions[0]
    assert refused.finish is Finish.REFUSED and refused.retry_after_s > 0 and "full" in refused.detail
    rig.check_stories()


def test_cancel_in_the_same_breath() -> None:
    rig = Rig()
    rig.submit(make_request(1, [5]))
    rig.cancel(1, "stop string")
    rig.run()
    [emission] = rig.stories[1].emissions
    assert (emission.finish, emission.detail) == (Finish.CANCELLED, "stop string")
    assert not rig.runner.plans


def test_ready_only_after_a_token() -> None:
    rig = Rig()
    assert not rig.engine.load().ready
    rig.engine.warm_up()
    load = rig.engine.load()
    assert load.ready and load.free_blocks == load.total_blocks and load.steps == 0
    rig.submit(make_request(1, [5] * 20))
    rig.run()
    rig.check_stories()


def test_a_model_that_cannot_make_a_token_is_not_ready() -> None:
    clock = ManualClock()
    runner = FakeRunner(default_info(), clock=clock, fault=lambda sampling, position: "nan")
    engine = Engine(runner, make_settings(), clock, EPOCH, lambda worker, message: None)
    with pytest.raises(ModelError, match="nan"):
        engine.warm_up()
    assert not engine.load().ready


def test_step_records_and_load() -> None:
    rig = Rig(step_time=lambda batch: 0.5, settings=make_settings(step_tokens=8))
    rig.submit(make_request(1, [5] * 20, max_tokens=3, ignore_eos=True))
    rig.step()
    record = rig.records[0]
    assert (record.step, record.tokens, record.sequences, record.running) == (1, 8, 1, 1)
    assert (record.time, record.execute_s, record.compute_s) == (0.0, 0.5, 0.5)
    load = rig.engine.load()
    assert (load.waiting, load.waiting_tokens, load.running, load.computed_tokens) == (0, 11, 1, 8)
    rig.run()
    assert [r.step for r in rig.records] == list(range(1, len(rig.records) + 1))


def test_a_failing_sequence_leaves_its_neighbours_alone() -> None:
    rig = Rig(fault=lambda sampling, position: "not finite" if sampling.seed == 1 and position == 4 else None)
    rig.submit(*(make_request(serial, [5, 6]) for serial in range(3)))
    rig.run()
    rig.check_stories()
    assert (rig.stories[1].finish, rig.stories[1].emissions[-1].detail) == (Finish.FAILED, "not finite")
    assert len(rig.stories[1].tokens) == 2


def test_logprobs_travel() -> None:
    rig = Rig()
    rig.submit(make_request(1, [5], logprobs=3, max_tokens=2, ignore_eos=True))
    rig.run()
    logprobs = [e.logprobs for e in rig.stories[1].emissions if e.tokens]
    assert [len(entry[0].top) for entry in logprobs if entry] == [3, 3]
