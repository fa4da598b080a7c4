"""What a streamed token costs beside the model: CPU of API and client, Python of a step, and HTTP against `LLM`."""

import statistics
import sys
from dataclasses import asdict

from report import Benchmark, Need, note, number, percent, show, where
from streaming_cost import LENGTHS, STREAMS, WAYS, Cost, measure_costs
from streaming_share import Round, measure_rounds
from streaming_step import StepCost, measure_steps

from headway.bench.plot import bars

API_US, STEP_MS, SHARE = 50.0, 0.5, 0.75


def main() -> int:
    bench = Benchmark("streaming", __doc__)
    costs = measure_costs(1 if bench.short else 5)
    step = measure_steps(1 if bench.short else 5)
    rounds = measure_rounds(1 if bench.short else 5)
    api = {name: statistics.median(cost.api_us for cost in cost_rounds) for name, cost_rounds in costs.items()}
    client = {name: statistics.median(cost.client_us for cost in cost_rounds) for name, cost_rounds in costs.items()}
    show_costs(costs, api, client)
    show_step(step)
    show_rounds(rounds)
    how = f"{STREAMS} streams, {LENGTHS[0]} tokens in, {LENGTHS[1]} out, an event each; {where()}"
    heights = {"API worker": list(api.values()), "bench load": list(client.values())}
    bars(
        list(WAYS),
        heights,
        "CPU us a token",
        bench.plot,
        title="What streaming a token costs",
        note=how,
        number="{:.1f}",
    )
    share = statistics.median(r.share for r in rounds)
    needs = [Need(f"API CPU a token, {name}, us", us, API_US) for name, us in api.items()]
    needs.append(Need(f"Python of a step of {STREAMS}, ms", step.python_ms, STEP_MS))
    needs.append(Need("tokens/s over HTTP, share of `LLM`", share, SHARE, least=True))
    data = {
        "cpu_us": {name: [asdict(cost) for cost in rounds] for name, rounds in costs.items()},
        "step_ms": asdict(step) | {"python": step.python_ms},
        "rounds": [asdict(r) for r in rounds],
    }
    return bench.finish(data, needs)


def show_costs(costs: dict[str, list[Cost]], api: dict[str, float], client: dict[str, float]) -> None:
    rows = [
        (name, number(api[name]), number(client[name]), ", ".join(number(cost.api_us) for cost in costs[name]))
        for name in costs
    ]
    show(f"CPU us a streamed token, {STREAMS} streams", ("", "API worker", "bench load", "API in each round"), rows)


def show_step(step: StepCost) -> None:
    rows = [(name, number(value)) for name, value in asdict(step).items()]
    rows.append(("Python", number(step.python_ms)))
    show(f"ms of a step of {STREAMS} sequences (medians)", ("", "ms"), rows)


def show_rounds(rounds: list[Round]) -> None:
    note(f"share of each round: {', '.join(percent(r.share) for r in rounds)}")
    rows = [
        ("LLM", number(statistics.median(r.llm for r in rounds))),
        ("HTTP", number(statistics.median(r.http for r in rounds))),
        ("share", percent(statistics.median(r.share for r in rounds))),
    ]
    show("tokens/s, prefill included (medians)", ("", "tokens/s"), rows)


if __name__ == "__main__":
    sys.exit(main())
