"""`headway bench policies`: continuous, dynamic and static batching on the same requests, with the same seats."""

import random
import statistics
import time
from array import array
from dataclasses import asdict, dataclass
from pathlib import Path

from headway.core.clock import MonotonicClock
from headway.core.config import Settings
from headway.core.events import StepMessage
from headway.core.request import EngineRequest
from headway.core.runner import Runner
from headway.core.sampling import Sampling
from headway.model.load import load_runner
from headway.scheduling.engine import Engine

POLICIES = ("continuous", "dynamic", "static")
REQUESTS = 16
SEATS = 4  # sequences that may share a step, whatever the policy
ROUNDS = 5


@dataclass(frozen=True, slots=True)
class Outcome:
    """Medians over the rounds. Latency is from arrival to the last token."""

    policy: str
    tokens_per_s: float  # generated
    p50_s: float
    p99_s: float

    def as_json(self) -> dict[str, object]:
        return asdict(self)


def compare(path: Path, settings: Settings) -> list[Outcome]:
    """16 requests at once, 8 to 512 prompt tokens and 4 to 256 output tokens; the policies run in turn."""
    runner = load_runner(path, settings.engine)
    try:
        rounds: dict[str, list[tuple[float, float, float]]] = {policy: [] for policy in POLICIES}
        for number in range(ROUNDS):
            for policy in POLICIES:
                rounds[policy].append(_run(runner, _seated(settings, policy), number))
        return [Outcome(policy, *map(statistics.median, zip(*rounds[policy], strict=True))) for policy in POLICIES]
    finally:
        runner.close()


def _seated(settings: Settings, policy: str) -> Settings:
    batching = settings.batching.model_copy(update={"policy": policy, "max_batch": SEATS})
    engine = settings.engine.model_copy(update={"max_sequences": SEATS})
    return settings.model_copy(update={"batching": batching, "engine": engine})


def _run(runner: Runner, settings: Settings, number: int) -> tuple[float, float, float]:
    """Tokens per second, p50 and p99 latency of one round."""
    ended: list[float] = []
    tokens = 0

    def publish(worker: int, message: StepMessage) -> None:
        nonlocal tokens
        for emission in message.emissions:
            tokens += len(emission.tokens)
            if emission.finish is not None:
                ended.append(time.monotonic() - start)

    engine = Engine(runner, settings, MonotonicClock(), epoch=0, publish=publish)
    engine.warm_up()
    start = time.monotonic()
    for request in _requests(number, runner.info.vocab_size, start):
        engine.submit(request)
    while engine.has_work:
        if not engine.step():
            wake = engine.next_wake(time.monotonic())
            time.sleep(max(0.0, (wake or 0.0) - time.monotonic()))
    ended.sort()
    return tokens / ended[-1], statistics.median(ended), ended[min(len(ended) - 1, int(0.99 * len(ended)))]


def _requests(number: int, vocab: int, now: float) -> list[EngineRequest]:
    chance = random.Random(number)
    lengths = [(8 << chance.randrange(7), 4 << chance.randrange(7)) for _ in range(REQUESTS)]
    requests = []
    for i, (prompt, output) in enumerate(lengths):
        ids = array("I", (chance.randrange(vocab) for _ in range(prompt)))
        sampling = Sampling(max_tokens=output, temperature=0.0, ignore_eos=True)
        requests.append(EngineRequest(id=i, epoch=0, prompt=ids.tobytes(), sampling=sampling, arrival=now))
    return requests
