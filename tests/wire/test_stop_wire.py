"""Stop strings over token borders, streamed and not."""

from typing import Any

import pytest
from server_rig import Rig, make_rig


def text_of(rig: Rig, **options: Any) -> tuple[str, str, int]:
    answer = rig.openai.completions.create(model="tiny", prompt="x", temperature=0, max_tokens=60, **options)
    assert answer.usage is not None
    return answer.choices[0].text, answer.choices[0].finish_reason, answer.usage.completion_tokens


@pytest.mark.parametrize(("begin", "length"), [(10, 1), (10, 2), (20, 5), (0, 3)])
def test_text_is_cut_before_the_stop(rig: Rig, begin: int, length: int) -> None:
    full, _, _ = text_of(rig)
    stop = full[begin : begin + length]
    cut = full.index(stop)
    text, reason, tokens = text_of(rig, stop=[stop, "never in it"])
    assert (text, reason) == (full[:cut], "stop")
    if full.isascii():
        assert tokens == cut + length  # one token per character: those of the stop string count, later ones do not
    stream = rig.openai.completions.create(
        model="tiny", prompt="x", temperature=0, max_tokens=60, stop=stop, stream=True, logprobs=0
    )
    parts = [chunk.choices[0] for chunk in stream]
    assert "".join(part.text for part in parts) == full[:cut]
    assert parts[-1].finish_reason == "stop"
    assert sum(len(part.logprobs.tokens or []) for part in parts if part.logprobs) <= tokens - length
    rig.wait_idle()


def test_a_hold_is_flushed_at_the_end(rig: Rig) -> None:
    full, _, _ = text_of(rig)
    stop = full[-4:] + "and never this"
    text, reason, _ = text_of(rig, stop=stop)
    assert (text, reason) == (full, "length")


def test_stop_cancels_in_the_engine() -> None:
    with make_rig(pace=0.01) as rig:
        full, _, _ = text_of(rig)
        before = rig.load().steps
        text_of(rig, stop=full[3])
        assert rig.wait_idle().steps - before < 30
