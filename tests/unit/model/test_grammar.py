"""Grammars over tokenizers of both kinds: masks, forced tokens, and what cannot be compiled."""

import json
import random
import threading
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import llguidance.numpy
import numpy as np
import pytest

from headway.core.config import LimitSettings
from headway.model.grammar import GrammarError, Grammars
from headway.model.grammar_slots import GrammarSlots
from headway.model.tokenizer import Tokenizer, load_tokenizer
from headway.serving.structured import Kind, grammar_source

MODELS = ["qwen2", "mistral_window"]  # byte-level BPE and SentencePiece's kind
PERSON = {
    "type": "object",
    "properties": {"full_name": {"type": "string", "maxLength": 12}, "kind": {"const": "natürlich 🙂 <s> ▁"}},
    "required": ["full_name", "kind"],
    "additionalProperties": False,
}


def source(kind: Kind, value: Any = None) -> str:
    return grammar_source(kind, value, LimitSettings(), "it")


@pytest.fixture(scope="module", params=[*MODELS, "default"])
def tokenizer(request: pytest.FixtureRequest, parity_fixtures: Path, default_model: Path) -> Tokenizer:
    return load_tokenizer(default_model if request.param == "default" else parity_fixtures / "hf" / request.param)


@pytest.fixture(scope="module")
def grammars(tokenizer: Tokenizer) -> Grammars:
    return Grammars(tokenizer, tokenizer.vocab_size + 7, tokenizer.end_ids)


@pytest.fixture
def slots(grammars: Grammars) -> Iterator[GrammarSlots]:
    made = GrammarSlots(lambda: grammars, 4, grammars.vocab_size, 2)
    yield made
    made.close()


def allowed(slots: GrammarSlots, slot: int) -> list[int]:
    assert slots.ready(slot, 60)
    assert slots.fill([slot]).result(60) == {}
    bits = np.unpackbits(slots.masks[slot].view(np.uint8), bitorder="little")
    return [int(i) for i in np.flatnonzero(bits)]


def opened(slots: GrammarSlots, text: str, output: list[int], *, jump: bool, slot: int = 0) -> None:
    slots.open(slot, text, array("I", output), jump)


def walk(slots: GrammarSlots, text: str, ends: tuple[int, ...], seed: int, *, jump: bool, slot: int = 0) -> list[int]:
    """Tokens of an output drawn at random from the masks, its end token last."""
    rng = random.Random(seed)
    opened(slots, text, [], jump=jump, slot=slot)
    output: list[int] = []
    while True:
        choices = allowed(slots, slot)
        over = [i for i in choices if i in ends]
        token = over[0] if over and (len(output) > 200 or len(over) == len(choices)) else rng.choice(choices)
        output.append(token)
        if token in ends:
            return output
        output += slots.take(slot, token)


def test_bytes_are_those_of_the_detokenizer(tokenizer: Tokenizer, grammars: Grammars, slots: GrammarSlots) -> None:
    """A grammar of one text gives that text, whichever way it is spelled."""
    text = 'Müller said: "日本語 🙂 ▁"'
    for seed, jump in ((0, True), (1, False), (2, False)):
        assert tokenizer.decode(walk(slots, source("choice", [text]), tokenizer.end_ids, seed, jump=jump)) == text
    mask = llguidance.numpy.allocate_token_bitmask(1, grammars.vocab_size)
    llguidance.numpy.fill_next_token_bitmask(grammars.compile(source("regex", "(?s:.)*")), mask)
    bits = np.unpackbits(mask[0].view(np.uint8), bitorder="little")
    for index in range(grammars.vocab_size):
        if not tokenizer.token_bytes(index):
            assert bits[index] == (index in tokenizer.end_ids), index
        elif tokenizer.token_bytes(index).decode("utf-8", "replace").isascii():
            assert bits[index], index


def test_special_tokens_in_a_text_are_text(tokenizer: Tokenizer, grammars: Grammars, slots: GrammarSlots) -> None:
    for seed in range(3):
        output = walk(slots, source("json_schema", PERSON), tokenizer.end_ids, seed, jump=True)
        assert json.loads(tokenizer.decode(output))["kind"] == PERSON["properties"]["kind"]["const"]  # type: ignore[index]


@pytest.mark.parametrize("seed", range(6))
def test_forced_tokens_are_those_that_the_masks_allow(tokenizer: Tokenizer, slots: GrammarSlots, seed: int) -> None:
    """Whatever is drawn, each forced token is the only one that the mask would have let through in its place."""
    text = source("json_schema", PERSON)
    output = walk(slots, text, tokenizer.end_ids, seed, jump=True)
    opened(slots, text, [], jump=True, slot=0)
    opened(slots, text, [], jump=False, slot=1)
    forced: list[int] = []
    jumps = 0
    for token in output:
        if forced:
            assert forced.pop(0) == token
            assert allowed(slots, 1) == [token]
            jumps += 1
        else:
            assert token in allowed(slots, 1) and token in allowed(slots, 0)
            forced = list(slots.take(0, token))
        assert slots.take(1, token) == ()
    assert jumps > 0
    value = json.loads(tokenizer.decode(output))
    assert list(value) == ["full_name", "kind"]


@pytest.mark.parametrize("jump", [True, False])
def test_state_follows_from_the_ids(tokenizer: Tokenizer, slots: GrammarSlots, jump: bool) -> None:
    """Opened anew with what was emitted, at whatever point, it goes on with the same masks."""
    text = source("json_schema", {"type": "array", "items": PERSON, "minItems": 1, "maxItems": 2})
    output = walk(slots, text, tokenizer.end_ids, 5, jump=jump)
    opened(slots, text, [], jump=False, slot=0)
    for count, token in enumerate(output):
        opened(slots, text, output[:count], jump=jump, slot=1)
        assert allowed(slots, 1) == allowed(slots, 0)
        slots.take(0, token)


def test_neighbours_share_nothing(tokenizer: Tokenizer, slots: GrammarSlots) -> None:
    text = source("json_schema", {"type": "array", "items": PERSON, "minItems": 2, "maxItems": 2})
    alone = walk(slots, text, tokenizer.end_ids, 1, jump=True)
    for slot in range(1, 4):
        walk(slots, text, tokenizer.end_ids, slot, jump=True, slot=slot)
    assert walk(slots, text, tokenizer.end_ids, 1, jump=True) == alone


def test_what_matches_no_more_fails_alone(tokenizer: Tokenizer, slots: GrammarSlots) -> None:
    digit, letter = (tokenizer.exact().encode(text, add_special_tokens=False).ids[-1] for text in ("7", "x"))
    opened(slots, source("regex", "[0-9]{3}"), [digit, letter], jump=True)
    with pytest.raises(GrammarError, match="does not match"):
        slots.ready(0, 60)
    opened(slots, source("regex", "[0-9]{3}"), [], jump=True)
    assert slots.ready(0, 60)
    slots.take(0, letter)
    opened(slots, source("regex", "[0-9]{3}"), [digit], jump=True, slot=1)
    assert slots.ready(1, 60)
    assert list(slots.fill([0, 1]).result(60)) == [0]
    assert digit in allowed(slots, 1)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("regex", "["),
        ("regex", "(?=x)y"),
        ("lark", "start: missing"),
        ("lark", "no colon"),
        ("json_schema", {"enum": []}),
        ("json_schema", False),
        ("json_schema", {"$ref": "#/$defs/none"}),
        ("json_schema", {"type": "string", "format": "no-such"}),
        ("json_schema", {"type": "strin"}),
    ],
)
def test_what_cannot_be_compiled_is_an_error_in_one_line(grammars: Grammars, kind: Kind, value: Any) -> None:
    with pytest.raises(GrammarError) as caught:
        grammars.matcher(source(kind, value))
    assert caught.value.message and "\n" not in caught.value.message


def test_a_model_without_an_end_has_no_grammars(tokenizer: Tokenizer) -> None:
    with pytest.raises(GrammarError, match="end token"):
        Grammars(tokenizer, tokenizer.vocab_size, ())


def test_compiled_grammars_are_kept_within_bounds(grammars: Grammars, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []
    compile_one = grammars.compile

    def counted(text: str) -> Any:
        compiled.append(text)
        return compile_one(text)

    monkeypatch.setattr(grammars, "compile", counted)
    monkeypatch.setattr("headway.model.grammar.MOST_KEPT", 2)
    monkeypatch.setattr("headway.model.grammar.MOST_COPIES", 3)
    texts = [source("choice", [f"text {i}"]) for i in range(3)]
    for text in [*texts, *texts[1:], texts[0]]:
        grammars.matcher(text)
    assert compiled == [*texts, texts[0]]
    for _ in range(6):
        grammars.matcher(texts[0])
    assert compiled[4:] == [texts[0]]


def test_the_first_masks_are_those_that_the_step_reads(slots: GrammarSlots, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two threads look at them; whoever of them came first, there is one array, made before the other looks."""
    makers, zeros = [], np.zeros

    def made(*given: Any, **named: Any) -> Any:
        makers.append(threading.current_thread())
        return zeros(*given, **named)

    monkeypatch.setattr("headway.model.grammar_slots.np.zeros", made)
    slots.open(0, source("regex", "a+"), array("I"), jump=True)
    assert slots.ready(0, 10)
    assert slots.fill([0]).result() == {}
    assert slots.masks.any()
    assert makers == [threading.current_thread()]
