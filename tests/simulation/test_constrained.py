"""Output by a grammar beside plain requests: the same tokens alone, in a crowd, chunked, preempted and recomputed."""

import json
import random
from dataclasses import replace
from typing import Any

import pytest
import tokenizers
from rig import Rig, make_request, make_settings
from tokenizers import decoders, models, pre_tokenizers

from headway.core.config import LimitSettings
from headway.core.events import Finish
from headway.core.lane import Lane
from headway.core.request import EngineRequest
from headway.core.runner import RunnerInfo, Sampled, Work
from headway.model.fake_runner import default_info
from headway.model.grammar import Grammars
from headway.model.tokenizer import Tokenizer
from headway.serving.structured import Kind, grammar_source

END = 2


def make_tokenizer() -> Tokenizer:
    names = ["<s>", "<pad>", "</s>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    backend = tokenizers.Tokenizer(models.BPE({name: i for i, name in enumerate(names)}, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(names[:3])
    return Tokenizer(backend, 0, (END,))


TOKENIZER = make_tokenizer()
INFO = default_info(vocab_size=TOKENIZER.vocab_size, context=200, block_size=8, slots=12, end_ids=(END,))
GRAMMARS = Grammars(TOKENIZER, INFO.vocab_size, (END,))


def source(kind: Kind, value: Any = None) -> str:
    return grammar_source(kind, value, LimitSettings(), "it")


LONG_NAME = "a_name_of_" + "very_" * 10 + "many_letters"
SCHEMA = {
    "type": "object",
    "properties": {LONG_NAME: {"type": "string", "maxLength": 4}, "n": {"enum": [1, 22, 333]}},
    "required": [LONG_NAME, "n"],
    "additionalProperties": False,
}
GRAMMAR_OF = {
    "plain": None,
    "schema": source("json_schema", SCHEMA),
    "choice": source("choice", ["short", "shorter", "a rather long text that leaves nothing to choose " * 2]),
    "regex": source("regex", r"[ab]{3}-(\d{2}){1,3}"),
}


def requests(count: int = 24, **changes: Any) -> list[EngineRequest]:
    rng = random.Random(4)
    return [
        make_request(
            serial,
            [rng.randint(3, 250) for _ in range(rng.choice([1, 9, 40]))],
            arrival=serial * 0.002,
            **{
                "max_tokens": rng.choice([5, 60, 150]),
                "grammar": list(GRAMMAR_OF.values())[serial % 4],
                "ignore_eos": rng.random() < 0.3,
                "min_tokens": rng.choice([0, 0, 4]),
                "stop_token_ids": (rng.randint(3, 250),) if rng.random() < 0.2 else (),
                "logprobs": 1 if rng.random() < 0.2 else None,
                "lane": rng.choice(list(Lane)),
                **changes,
            },
        )
        for serial in range(count)
    ]


def rig_of(info: RunnerInfo = INFO, **settings: Any) -> Rig:
    return Rig(info, make_settings(**settings), grammars=lambda: GRAMMARS, end_probability=0.02)


def alone(request: EngineRequest) -> tuple[list[int], Finish | None]:
    rig = rig_of(step_tokens=512, prefix_cache=False)
    rig.submit(request)
    rig.run()
    return rig.stories[request.id].tokens, rig.stories[request.id].finish


@pytest.mark.parametrize("blocks", [26, 400])
@pytest.mark.parametrize("step_tokens", [12, 64, 512])
def test_tokens_are_those_of_the_request_alone(step_tokens: int, blocks: int) -> None:
    rig = rig_of(replace(INFO, blocks=blocks), step_tokens=step_tokens)
    rig.expect_short_answers()
    rig.submit(*requests())
    rig.run()
    for request in rig.requests.values():
        story = rig.stories[request.id]
        assert (story.tokens, story.finish) == alone(request), request.id
    assert (rig.scheduler.counters.preemptions > 0) == (blocks == 26)


def test_output_follows_the_grammar_to_its_end() -> None:
    rig = rig_of()
    rig.submit(*requests(max_tokens=150, stop_token_ids=()))
    rig.run()
    for request in rig.requests.values():
        story, grammar = rig.stories[request.id], request.sampling.grammar
        assert len(story.tokens) <= request.sampling.max_tokens
        if grammar is None:
            continue
        matcher = GRAMMARS.matcher(grammar)
        assert matcher.consume_tokens(story.tokens), request.id
        assert (story.finish is Finish.STOP) == (story.tokens[-1] == END)
        if grammar == GRAMMAR_OF["schema"]:
            assert story.finish is Finish.STOP  # whatever ignore_eos and min_tokens say
            assert list(json.loads(TOKENIZER.decode(story.tokens))) == [LONG_NAME, "n"]


def test_forced_tokens_come_at_once_and_cost_no_steps() -> None:
    [request] = requests(1, grammar=GRAMMAR_OF["schema"], max_tokens=150, stop_token_ids=(), logprobs=None)
    rig = rig_of(step_tokens=512)
    rig.submit(request)
    rig.run()
    most = max(len(e.tokens) for e in rig.stories[0].emissions)
    assert most > len(LONG_NAME)
    slow = rig_of()
    slow.submit(*requests(1, grammar=GRAMMAR_OF["schema"], max_tokens=150, stop_token_ids=(), logprobs=0))
    slow.run()
    assert max(len(e.tokens) for e in slow.stories[0].emissions) == 1
    assert slow.stories[0].tokens == rig.stories[0].tokens
    assert slow.scheduler.counters.steps >= rig.scheduler.counters.steps + len(LONG_NAME)


@pytest.mark.parametrize("max_tokens", range(1, 30))
def test_a_jump_stops_at_the_limit(max_tokens: int) -> None:
    [request] = requests(1, grammar=GRAMMAR_OF["schema"], max_tokens=max_tokens, stop_token_ids=())
    whole = alone(requests(1, grammar=GRAMMAR_OF["schema"], max_tokens=150, stop_token_ids=())[0])[0]
    assert alone(request) == (whole[:max_tokens], Finish.LENGTH)


def test_a_jump_stops_at_a_stop_token() -> None:
    stop = TOKENIZER.encode("v", add_special=False)[0]
    [request] = requests(1, grammar=GRAMMAR_OF["schema"], max_tokens=150, stop_token_ids=(stop,), logprobs=None)
    tokens, finish = alone(request)
    assert tokens[-1] == stop and tokens.count(stop) == 1 and finish is Finish.STOP


class Compiling(Rig):
    """Each grammar takes some steps to compile: the first draws are put off."""

    def __init__(self, steps: int, **settings: Any) -> None:
        super().__init__(INFO, make_settings(**settings), grammars=lambda: GRAMMARS, end_probability=0.02)
        result, waits = self.runner._result, {}

        def patient(work: Work) -> Sampled | None:
            slot = self.runner._slots[work.slot]
            key = (work.slot, id(slot))
            if work.sample and slot.sampling.grammar and waits.setdefault(key, steps) > 0:
                waits[key] -= 1
                return None
            return result(work)

        self.runner._result = patient  # type: ignore[method-assign]


@pytest.mark.parametrize("step_tokens", [16, 512])
def test_a_draw_put_off_changes_nothing(step_tokens: int) -> None:
    rig = Compiling(3, step_tokens=step_tokens)
    rig.submit(*requests())
    rig.run()
    for request in rig.requests.values():
        story = rig.stories[request.id]
        assert (story.tokens, story.finish) == alone(request), request.id


def test_a_grammar_that_fails_ends_its_own_request_only() -> None:
    rig = rig_of()
    bad = '{"grammars":[{"lark_grammar":"start: nothing"}]}'
    rig.submit(*requests(3, grammar=None), make_request(9, [5, 6], grammar=bad))
    rig.run()
    assert rig.stories[9].finish is Finish.FAILED and "nothing" in rig.stories[9].emissions[-1].detail
    assert all(rig.stories[i].finish in (Finish.STOP, Finish.LENGTH) for i in range(3))


def test_a_runner_without_grammars_says_so() -> None:
    rig = Rig(INFO)
    rig.submit(make_request(1, [5, 6], grammar=GRAMMAR_OF["choice"]))
    rig.run()
    assert rig.stories[1].finish is Finish.FAILED and "no text" in rig.stories[1].emissions[-1].detail
