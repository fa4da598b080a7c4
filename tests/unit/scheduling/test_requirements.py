import pytest
from rig import make_request

from headway.scheduling.requirements import Requirements


@pytest.mark.parametrize(
    ("prompt", "problem"),
    [([1, 2], None), ([], "no tokens"), ([1] * 7, None), ([1] * 8, "KV cache"), ([1] * 20, "context"), ([50], "vocab")],
)
def test_problem(prompt: list[int], problem: str | None) -> None:
    said = Requirements(context=20, capacity=8, vocab_size=50).problem(make_request(1, prompt))
    assert said is None if problem is None else said is not None and problem in said
