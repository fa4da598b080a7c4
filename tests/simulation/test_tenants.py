"""One tenant floods a server whose promise binds; another that is modest hardly notices."""

import random
from collections.abc import Iterator
from heapq import merge

import pytest
from rig import make_request, make_settings
from watch import Watched

from headway.core.config import PromiseSettings
from headway.core.events import Finish
from headway.core.request import EngineRequest

PROMISE = PromiseSettings(ttft_ms=500.0, itl_ms=50.0)
SECONDS, WARM_S = 60.0, 8.0
CAPACITY = 4.0  # requests a second that one server can serve
SMALL = 10**6


def arrivals(first: int, rate: float, seed: int, tenant: str, weight: float = 1.0) -> Iterator[EngineRequest]:
    """Poisson; 64-192 tokens in and out."""
    rng, time = random.Random(seed), 0.0
    while True:
        time += rng.expovariate(rate)
        prompt = [rng.randrange(3, 900) for _ in range(rng.randint(64, 192))]
        first += 1
        yield make_request(
            first,
            prompt,
            arrival=time,
            max_tokens=rng.randint(64, 192),
            ignore_eos=True,
            tenant=tenant,
            weight=weight,
        )


def good(w: Watched, request: int) -> bool:
    if w.ends[request][1] is Finish.REFUSED:
        return False
    gaps = w.gaps(request)
    return w.first(request) <= 0.5 + 2 * 192 * 7e-4 and sum(gaps) / max(1, len(gaps)) <= 0.05


def share_of_good(w: Watched, first: int, last: int = 10**9) -> float:
    ended = [n for n in w.ends if first < n < last and WARM_S < w.requests[n].arrival < SECONDS - 12]
    assert len(ended) > 10
    return sum(good(w, n) for n in ended) / len(ended)


def overload(small: str, seed: int) -> Watched:
    """Ten times what there is room for, from "big", and a tenth of that room for the small one."""
    w = Watched(make_settings(step_tokens=512, sequences=256, promise=PROMISE))
    sources = (arrivals(0, 10 * CAPACITY, seed, "big"), arrivals(SMALL, 0.1 * CAPACITY, seed + 50, small))
    w.play(merge(*sources, key=lambda r: r.arrival), SECONDS)
    return w


def test_a_modest_tenant_is_served_beside_one_that_floods() -> None:
    shares = [share_of_good(overload("small", seed), SMALL) for seed in (1, 2, 3)]
    assert sum(shares) / len(shares) >= 0.99, shares


def test_told_apart_by_nothing_it_drowns() -> None:
    assert share_of_good(overload("big", 1), SMALL) < 0.7


def test_the_flood_still_has_all_that_is_left() -> None:
    w = overload("small", 1)
    served = [n for n in w.ends if n < SMALL and w.ends[n][1] is Finish.LENGTH and w.ends[n][0] > WARM_S]
    assert len(served) / (SECONDS - WARM_S) > 0.7 * CAPACITY
    assert sum(good(w, n) for n in served) >= 0.95 * len(served)


@pytest.mark.parametrize("weight", [1.0, 3.0])
def test_two_that_flood_share_by_weight(weight: float) -> None:
    w = Watched(make_settings(step_tokens=512, sequences=256, promise=PROMISE))
    sources = (arrivals(0, 20.0, 1, "one"), arrivals(SMALL, 20.0, 2, "other", weight))
    w.play(merge(*sources, key=lambda r: r.arrival), SECONDS)
    served = [n for n, (time, finish) in w.ends.items() if finish is Finish.LENGTH and time > WARM_S]
    other = sum(n > SMALL for n in served)
    assert other / len(served) == pytest.approx(weight / (1 + weight), abs=0.1)
