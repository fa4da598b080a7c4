"""A request of stated lengths whose prompt is random tokens, so that nothing of it is in the prefix cache."""

import random
from array import array

from headway.core.request import EngineRequest
from headway.core.sampling import Sampling


def random_request(
    serial: int, prompt_tokens: int, output_tokens: int, vocab: int, arrival: float, seed: int = 0
) -> EngineRequest:
    """The same prompt for the same serial and seed. It generates exactly `output_tokens`, greedily."""
    chance = random.Random(f"{seed}/{serial}")
    ids = array("I", (chance.randrange(vocab) for _ in range(prompt_tokens)))
    sampling = Sampling(max_tokens=output_tokens, temperature=0.0, ignore_eos=True)
    return EngineRequest(id=serial, epoch=0, prompt=ids.tobytes(), sampling=sampling, arrival=arrival)
