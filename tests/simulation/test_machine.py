"""Hypothesis drives the engine through arbitrary interleavings of requests, cancels, time and steps."""

import os
from typing import Any

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule
from msgspec import structs
from rig import EPOCH, Rig, make_request, make_settings

from headway.core.config import LaneSettings, PromiseSettings, QueueSettings, TuningSettings
from headway.core.events import Finish
from headway.core.lane import Lane
from headway.core.request import Cancel
from headway.model.fake_runner import default_info

STEM = [(7 * i) % 200 + 3 for i in range(80)]


class EngineMachine(RuleBasedStateMachine):
    requests = Bundle("requests")

    @initialize(
        blocks=st.integers(4, 30),
        slots=st.integers(1, 6),
        step_tokens=st.sampled_from([1, 5, 16, 64]),
        policy=st.sampled_from(["continuous", "dynamic", "static"]),
        prefix_cache=st.booleans(),
        windows=st.sampled_from([(0,), (0, 0), (7,), (0, 9), (1,)]),
        short_answers=st.booleans(),
    )
    def start(
        self,
        blocks: int,
        slots: int,
        step_tokens: int,
        policy: str,
        prefix_cache: bool,
        windows: tuple[int, ...],
        short_answers: bool,
    ) -> None:
        info = default_info(blocks=blocks, block_size=4, slots=slots, context=90, windows=windows)
        chosen = make_settings(step_tokens=step_tokens, policy=policy, prefix_cache=prefix_cache, max_batch=3)
        self.rig = Rig(info, chosen, end_probability=0.03)
        if short_answers:
            self.rig.expect_short_answers()
        self.serial = 0

    @rule(
        target=requests,
        stem=st.sampled_from([0, 3, 4, 16, 40, 41, 80]),
        tail=st.just([]) | st.lists(st.integers(3, 900), max_size=12),
        max_tokens=st.integers(0, 30),
        patience=st.none() | st.floats(-0.01, 0.2),
        lag=st.sampled_from([0.0, 0.0, 0.01]),
        salt=st.sampled_from([b"", b"a"]),
        lane=st.sampled_from(Lane),
        tenant=st.sampled_from(["", "a", "b"]),
        weight=st.sampled_from([1.0, 1.0, 7.0]),
        truncate=st.booleans(),
        followers=st.sampled_from([0, 0, 0, 1, 4]),
        stray=st.booleans(),
    )
    def submit(
        self,
        stem: int,
        tail: list[int],
        max_tokens: int,
        patience: float | None,
        lag: float,
        followers: int,
        stray: bool,
        **fields: Any,
    ) -> int:
        self.serial += 1
        now = self.rig.clock.now()
        deadline = None if patience is None else now + patience
        prompt = STEM[:stem] + tail
        leader = self.serial
        request = make_request(leader, prompt, arrival=now - lag, deadline=deadline, max_tokens=max_tokens, **fields)
        self.rig.submit(request)
        for _ in range(followers):  # not all of them really have its prompt
            self.serial += 1
            replaced = {"id": self.serial, "leader": leader, "prompt": request.prompt[: -4 if stray else None]}
            self.rig.submit(structs.replace(request, **replaced))
        return leader

    @rule(request=consumes(requests))
    def cancel(self, request: int) -> None:
        self.rig.cancel(request)
        self.rig.step()
        assert not self.rig.scheduler.is_live(request)
        assert all(s.id != request for s in self.rig.scheduler.running)

    @rule(request=consumes(requests))
    def cancel_while_computing(self, request: int) -> None:
        self.rig.runner.during = lambda: self.rig.scheduler.cancel(request, "stop string")
        self.rig.step()
        self.rig.runner.during = None
        assert all(s.id != request for s in self.rig.scheduler.running) or self.rig.scheduler.is_live(request)

    @rule()
    def speak_of_another_life(self) -> None:
        self.rig.engine.submit(make_request(999, [5], epoch=EPOCH - 1))
        self.rig.engine.submit(Cancel(id=self.serial, epoch=EPOCH - 1, reason="old"))

    @rule(count=st.integers(1, 8))
    def step(self, count: int) -> None:
        for _ in range(count):
            self.rig.step()

    @rule(
        policy=st.sampled_from(["continuous", "dynamic", "static"]),
        itl_ms=st.sampled_from([0.0, 1.0, 50.0]),
        token_s=st.sampled_from([0.0, 0.05, 60.0]),
        queue_s=st.sampled_from([0.0, 0.0, 0.05]),
        ttft_ms=st.sampled_from([0.0, 0.0, 50.0]),
        least_share=st.sampled_from([0.0, 0.02, 0.3]),
        long_prompt=st.sampled_from([10, 2048]),
        tuned=st.booleans(),
        most=st.sampled_from([0, 2, 100_000]),
    )
    def reconfigure(
        self,
        policy: str,
        itl_ms: float,
        token_s: float,
        queue_s: float,
        ttft_ms: float,
        least_share: float,
        long_prompt: int,
        tuned: bool,
        most: int,
    ) -> None:
        promise = PromiseSettings(itl_ms=itl_ms, token_s=token_s, queue_s=queue_s, ttft_ms=ttft_ms)
        chosen = make_settings(
            policy=policy,
            max_batch=3,
            promise=promise,
            lanes=LaneSettings(least_share=least_share, long_prompt_tokens=long_prompt),
            tuning=TuningSettings(enabled=tuned, min_sequences=1, min_chunk_tokens=3),
            queue=QueueSettings(max_requests=most),
        )
        live = set(self.rig.scheduler._live)
        self.rig.settings = chosen.model_copy(update={"engine": self.rig.settings.engine})
        self.rig.engine.reconfigure(self.rig.settings)
        assert set(self.rig.scheduler._live) == live

    @rule(wards=st.integers(0, 3), place=st.integers(1, 60))
    def kill(self, wards: int, place: int) -> None:
        """And the next engine is to watch some of the requests, in so many groups, until they are past the place."""
        live = [id for id, story in self.rig.stories.items() if story.finish is None]
        self.rig.kill([[(id, place) for id in live if id % 4 == ward] for ward in range(wards)])

    @rule(seconds=st.floats(0, 0.1))
    def sleep(self, seconds: float) -> None:
        self.rig.clock.advance(seconds)

    @invariant()
    def nothing_runs_past_its_deadline(self) -> None:
        if hasattr(self, "rig") and self.rig.records:
            begin = self.rig.records[-1].time
            assert all(s.deadline is None or s.deadline > begin for s in self.rig.scheduler.running)

    def teardown(self) -> None:
        if not hasattr(self, "rig"):
            return
        self.rig.runner.during = None
        self.rig.run()
        for request, story in self.rig.stories.items():
            assert story.finish is not None
            if story.finish is not Finish.FAILED and self.rig.requests[request].sampling.max_tokens:
                self.rig.check_tokens(request)


TestEngineMachine = EngineMachine.TestCase
TestEngineMachine.settings = settings(
    max_examples=int(os.environ.get("HEADWAY_TEST_EXAMPLES", "400")),
    stateful_step_count=40,
    suppress_health_check=list(HealthCheck),
)
