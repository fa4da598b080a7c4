"""What an API worker counts, and how it is shown to Prometheus."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from headway.core.events import Load, Tuning
from headway.core.lane import Lane
from headway.observability.slots import Slots

# Wide, so that the tail stays visible: from half a millisecond to ten minutes.
SECONDS = (
    *(0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3),
    *(0.4, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 7.5, 10.0, 15.0, 20.0, 30.0, 45.0, 60.0, 120.0, 300.0, 600.0),
)
OUTCOMES = ("stop", "length", "cancelled", "refused", "invalid", "expired", "unavailable", "failed")
HISTOGRAMS = (
    ("headway_time_to_first_token_seconds", "From HTTP arrival to the first text."),
    ("headway_inter_token_seconds", "Between two pieces of text of one stream."),
    ("headway_request_seconds", "From HTTP arrival to the end of the generation."),
)
PROMPT_TOKENS = 0
GENERATED_TOKENS = 1
LIVE = 2
RESUMED = 3
JOURNAL_BYTES = 4
REPLAYED = 5
FIRST_OUTCOME = 6
FIRST_HISTOGRAM = FIRST_OUTCOME + len(OUTCOMES)
HISTOGRAM_SLOTS = len(SECONDS) + 2  # one count per bucket, +Inf included, and the sum
SLOT_COUNT = FIRST_HISTOGRAM + len(HISTOGRAMS) * HISTOGRAM_SLOTS


@dataclass(frozen=True, slots=True)
class EngineState:
    """The engine's, as this worker sees it."""

    ready: bool
    restarts: int  # since this worker was started
    breaker: str  # closed, open or half_open
    openings: int  # of the breaker


class Metrics:
    """Counts of one API worker; `render` shows the sum over all of them."""

    def __init__(self, folder: Path | None = None, worker: int = 0) -> None:
        self._slots = Slots(SLOT_COUNT, folder, worker)
        self._values = self._slots.values
        self._values[LIVE] = self._values[JOURNAL_BYTES] = 0.0  # nothing of a former life of this worker is there

    def first_token(self, seconds: float) -> None:
        self._observe(0, seconds)

    def gap(self, seconds: float) -> None:
        # The one call per token: the body of _observe, without the call.
        values = self._values
        values[FIRST_HISTOGRAM + HISTOGRAM_SLOTS + bisect_left(SECONDS, seconds)] += 1.0
        values[FIRST_HISTOGRAM + 2 * HISTOGRAM_SLOTS - 1] += seconds

    def total(self, seconds: float) -> None:
        self._observe(2, seconds)

    def _observe(self, histogram: int, seconds: float) -> None:
        first = FIRST_HISTOGRAM + histogram * HISTOGRAM_SLOTS
        self._values[first + bisect_left(SECONDS, seconds)] += 1.0
        self._values[first + HISTOGRAM_SLOTS - 1] += seconds

    def live(self, change: int) -> None:
        """Generations that passed the gate and have not ended."""
        self._values[LIVE] += change

    def resumed(self) -> None:
        """A reader has come back to a stream."""
        self._values[RESUMED] += 1.0

    def replayed(self, requests: int) -> None:
        """Requests given to another engine, since theirs had died."""
        self._values[REPLAYED] += requests

    def journal(self, change: int) -> None:
        """Bytes kept of resumable streams."""
        self._values[JOURNAL_BYTES] += change

    def finished(self, outcome: str, prompt_tokens: int, generated_tokens: int) -> None:
        self._values[FIRST_OUTCOME + OUTCOMES.index(outcome)] += 1.0
        self._values[PROMPT_TOKENS] += prompt_tokens
        self._values[GENERATED_TOKENS] += generated_tokens

    def render(self, load: Load | None, engine: EngineState) -> bytes:
        """The text that Prometheus scrapes; `load` is the engine's newest."""
        registry = CollectorRegistry()
        registry.register(_Snapshot(self._slots.totals(), load, engine))
        return generate_latest(registry)


class _Snapshot(Collector):
    def __init__(self, totals: list[float], load: Load | None, engine: EngineState) -> None:
        self._totals = totals
        self._load = load
        self._engine = engine

    def collect(self) -> Iterable[Metric]:
        yield from self._requests()
        for index, (name, help) in enumerate(HISTOGRAMS):
            yield self._histogram(index, name, help)
        yield from self._state()
        if self._load is not None:
            yield from _engine(self._load)

    def _state(self) -> Iterator[Metric]:
        engine = self._engine
        yield GaugeMetricFamily("headway_ready", "1 while the server would take a request.", value=float(engine.ready))
        restarts = "Engines that have taken over from one that died."
        yield CounterMetricFamily("headway_engine_restarts", restarts, value=float(engine.restarts))
        replayed = "Requests given to another engine, which goes on with them."
        yield CounterMetricFamily("headway_engine_replayed_requests", replayed, value=self._totals[REPLAYED])
        breaker = GaugeMetricFamily(
            "headway_engine_breaker", "1 for the state of the circuit breaker before the engine.", labels=["state"]
        )
        for state in ("closed", "open", "half_open"):
            breaker.add_metric([state], float(state == engine.breaker))
        yield breaker
        openings = "Times that the circuit breaker before the engine has opened."
        yield CounterMetricFamily("headway_engine_breaker_openings", openings, value=float(engine.openings))

    def _requests(self) -> Iterator[Metric]:
        totals = self._totals
        outcomes = CounterMetricFamily(
            "headway_requests", "Generations by how they ended; `cancelled`: the client went away.", labels=["outcome"]
        )
        for i, outcome in enumerate(OUTCOMES):
            outcomes.add_metric([outcome], totals[FIRST_OUTCOME + i])
        yield outcomes
        live = "Generations in flight in the API, tokenising and waiting included."
        yield GaugeMetricFamily("headway_requests_live", live, value=totals[LIVE])
        resumed = "Readers that came back to a resumable stream."
        yield CounterMetricFamily("headway_streams_resumed", resumed, value=totals[RESUMED])
        journal = "Events kept of resumable streams."
        yield GaugeMetricFamily("headway_stream_journal_bytes", journal, value=totals[JOURNAL_BYTES])
        prompt = "Prompt tokens of generations that ended."
        yield CounterMetricFamily("headway_prompt_tokens", prompt, value=totals[PROMPT_TOKENS])
        generated = "Tokens generated for their readers."
        yield CounterMetricFamily("headway_generated_tokens", generated, value=totals[GENERATED_TOKENS])

    def _histogram(self, index: int, name: str, help: str) -> HistogramMetricFamily:
        first = FIRST_HISTOGRAM + index * HISTOGRAM_SLOTS
        buckets: list[tuple[str, float]] = []
        count = 0.0
        for i, edge in enumerate([*SECONDS, float("inf")]):
            count += self._totals[first + i]
            buckets.append(("+Inf" if i == len(SECONDS) else repr(edge), count))
        family = HistogramMetricFamily(name, help)
        family.add_metric([], buckets=buckets, sum_value=self._totals[first + HISTOGRAM_SLOTS - 1])
        return family


def _engine(load: Load) -> Iterator[Metric]:
    gauges = (
        ("headway_queue_depth", "Requests waiting in the engine's queue.", load.waiting),
        ("headway_queue_tokens", "Prompt tokens not yet computed.", load.waiting_tokens),
        ("headway_running", "Sequences running.", load.running),
        ("headway_kv_blocks", "KV blocks in the pool.", load.total_blocks),
        ("headway_kv_blocks_free", "KV blocks free, or cached and evictable.", load.free_blocks),
        ("headway_predicted_wait_seconds", "Wait of a request that comes now.", load.predicted_wait_s),
    )
    for name, help, value in gauges:
        yield GaugeMetricFamily(name, help, value=float(value))
    used = 1.0 - load.free_blocks / load.total_blocks if load.total_blocks else 0.0
    yield GaugeMetricFamily("headway_kv_usage_ratio", "Share of the KV pool that live sequences hold.", value=used)
    if load.prediction_error is not None:
        help = "Median relative error of the recent predictions of a step's time."
        yield GaugeMetricFamily("headway_prediction_error_ratio", help, value=load.prediction_error)
    yield from _lanes(load)
    if load.tuning is not None:
        yield from _tuning(load.tuning)
    counters = (
        ("headway_engine_steps", "Steps computed.", load.steps),
        ("headway_computed_tokens", "Tokens computed, prefill and decode.", load.computed_tokens),
        ("headway_cached_tokens", "Prompt tokens served from the prefix cache.", load.cached_tokens),
        ("headway_preemptions", "Sequences preempted.", load.preemptions),
        ("headway_recomputed_tokens", "Tokens computed again after a preemption.", load.recomputed_tokens),
    )
    for name, help, value in counters:
        yield CounterMetricFamily(name, help, value=float(value))


def _lanes(load: Load) -> Iterator[Metric]:
    waiting = GaugeMetricFamily("headway_lane_waiting", "Requests waiting, by lane.", labels=["lane"])
    running = GaugeMetricFamily("headway_lane_running", "Sequences running, by lane.", labels=["lane"])
    for lane, entry in zip(Lane, load.lanes, strict=False):  # none while the model loads
        waiting.add_metric([lane.label], entry.waiting)
        running.add_metric([lane.label], entry.running)
    yield waiting
    yield running


def _tuning(tuning: Tuning) -> Iterator[Metric]:
    limit = "Interactive sequences that may run at once, as self-tuning has it."
    yield GaugeMetricFamily("headway_batch_limit", limit, value=float(tuning.batch_limit))
    margin = "Share of promise.itl_ms that a step is planned for, as self-tuning has it."
    yield GaugeMetricFamily("headway_step_margin_ratio", margin, value=tuning.margin)
    chunk = "Tokens of a new prompt that a step takes beside the streams there are."
    yield GaugeMetricFamily("headway_chunk_tokens", chunk, value=float(tuning.chunk_tokens))
    decisions = CounterMetricFamily(
        "headway_tuning_decisions", "Changes of self-tuning; the log says why.", labels=["direction"]
    )
    decisions.add_metric(["up"], tuning.ups)
    decisions.add_metric(["down"], tuning.downs)
    yield decisions
