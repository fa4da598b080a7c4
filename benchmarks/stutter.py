"""Eight streams decode while a 4,000-token prompt arrives: no stream stutters, and the prompt is not starved."""

import sys
from dataclasses import asdict
from statistics import median

from report import Benchmark, Need, number, show, where
from server import Server
from stutter_rounds import PROMPTS, Round, Size, stutter, together
from traffic import run

from headway.bench.plot import Series, curve

PROMISED_MS = 50.0
TAIL_MS = 1.2 * PROMISED_MS
SLOWER = 2.0  # times its time alone that the prompt may take beside the streams
EACH_SLOWER = 1.5  # of prompts at once, the k-th may take so many times k


def main() -> int:
    bench = Benchmark("stutter", __doc__)
    size = Size(prompt=300, output=60, before=10, rounds=3) if bench.short else Size()
    with Server("--workload", "chat") as server:
        tried = run(stutter(server, size))
    rounds = [r for r in tried if r is not None]
    if not rounds:
        raise SystemExit("the prompt was refused in every round")
    with Server() as server:  # a promise that binds would refuse the fourth
        several = run(together(server, size))
    show_rounds(rounds)
    alone = median(a for a, _ in several)
    ratios = [median(times[k] for _, times in several) / alone for k in range(PROMPTS)]
    rows = [(str(k + 1), number(median(t[k] for _, t in several)), number(ratio)) for k, ratio in enumerate(ratios)]
    show(f"{PROMPTS} prompts at once, alone {alone:.2f} s", ("k-th", "first token, s", "times alone"), rows)
    draw(bench, rounds[-1])
    p99 = median(r.beside.p99 for r in rounds)
    slower = median(r.beside_s for r in rounds) / median(r.alone_s for r in rounds)
    needs = [
        Need("rounds in which the prompt or a stream was refused", len(tried) - len(rounds), 0),
        Need("gaps while the prompt is computed, p99 ms (median of rounds)", p99, TAIL_MS),
        Need("the prompt's first token, times alone (medians)", slower, SLOWER),
        *(Need(f"prompt {k} of {PROMPTS} at once, times alone", r, EACH_SLOWER * k) for k, r in enumerate(ratios, 1)),
    ]
    data = {"size": asdict(size), "rounds": [asdict(r) for r in rounds], "together": several}
    return bench.finish(data, needs)


def show_rounds(rounds: list[Round]) -> None:
    rows = [
        (str(i), *(number(v) for s in (r.beside, r.whole) for v in (s.p50, s.p99, s.max)), *map(number, prompt_of(r)))
        for i, r in enumerate(rounds, 1)
    ]
    columns = (
        *("round", "beside: p50", "p99", "max", "whole life: p50", "p99", "max"),
        *("prompt, s", "alone, s", "ratio"),
    )
    show("gaps of the eight streams in ms, beside the prompt and over all", columns, rows)


def prompt_of(r: Round) -> tuple[float, float, float]:
    return r.beside_s, r.alone_s, r.beside_s / r.alone_s


def draw(bench: Benchmark, shown: Round) -> None:
    zero = shown.first_stream[0][0]
    x = [at + seconds - zero for at, seconds in shown.first_stream]
    span = [at - zero for at in shown.prompt]
    series = [
        Series("gaps of one of the streams", x, [seconds * 1e3 for _, seconds in shown.first_stream], 5, label=""),
        Series("promised", [0.0, x[-1]], [PROMISED_MS, PROMISED_MS], 2, dashed=True),
        Series("the prompt: sent, first token", span, [0.0, 0.0], 1, label=""),
    ]
    how = f"SmolLM2-135M; {where()}"
    title = "Eight streams while a 4,000-token prompt is computed"
    curve(series, "seconds since the stream's first token", "gap, ms", bench.plot, title=title, note=how)


if __name__ == "__main__":
    sys.exit(main())
