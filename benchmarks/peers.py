"""Headway beside other engines on the same processor, file and threads: each in a process of its own, taking turns.

    python benchmarks/peers.py [--openvino PYTHON] [--llama LLAMA-BATCHED-BENCH]

`--openvino` is an interpreter that has `openvino-genai`. Prints a table in Markdown: medians, least and greatest.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

from report import machine, note, number

from headway.core.config import EngineSettings
from headway.model.inspection import inspect_model
from headway.model.source import resolve

HERE = Path(__file__).parent
STOP_S = 10.0


@dataclass(frozen=True, slots=True)
class Case:
    """`steps` decodes of `sequences` after `context` tokens; with 0 steps the prefill of one prompt of that length."""

    name: str
    sequences: int
    context: int
    steps: int

    @property
    def tokens(self) -> int:
        return self.sequences * self.steps or self.context

    def request(self, steps: int) -> dict[str, Any]:
        if not self.steps:
            return {"do": "prefill", "tokens": self.context}
        return {"do": "decode", "sequences": self.sequences, "context": self.context, "steps": steps}


CASES = (
    Case("decode, 1 sequence", 1, 128, 64),
    Case("decode, 8 sequences", 8, 128, 64),
    Case("decode, 32 sequences", 32, 128, 32),
    Case("decode, 32 sequences, 2,048 tokens of context", 32, 2048, 16),
    Case("prefill, 512 tokens", 1, 512, 0),
    Case("prefill, 4,096 tokens", 1, 4096, 0),
)
SHORT = (Case("decode, 2 sequences", 2, 64, 8), Case("prefill, 128 tokens", 1, 128, 0))
WARM_STEPS = 4
ROUNDS, SHORT_ROUNDS = 5, 2


class Driver:
    """An engine's process. It says what it is, and then answers one request at a time (peers/driver.py)."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command
        self.about: dict[str, str] = {}

    def __enter__(self) -> "Driver":
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(self._command, stdin=pipe, stdout=pipe, stderr=sys.stderr, text=True)
        try:
            self.about = self._answer()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def tokens_per_s(self, case: Case, steps: int | None = None) -> float:
        """`steps`: fewer than the case has, to warm up."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(case.request(steps or case.steps)) + "\n")
        self._process.stdin.flush()
        return case.tokens / float(self._answer()["seconds"])

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        answer: dict[str, Any] = json.loads(line) if line else {"error": "it ended"}
        if "error" in answer:
            raise SystemExit(f"{' '.join(self._command)}: {answer['error']}")
        return answer

    def _stop(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()  # the end of what it reads ends it
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()


@dataclass(slots=True)
class Pairs:
    """Tokens per second of Headway and, right after it, of one peer: a pair a round."""

    headway: list[float] = field(default_factory=list)
    peer: list[float] = field(default_factory=list)

    @property
    def ratios(self) -> list[float]:
        return [ours / theirs for ours, theirs in zip(self.headway, self.peer, strict=True)]


def measure(case: Case, headway: Driver, peers: Sequence[Driver], rounds: int) -> list[Pairs]:
    """One `Pairs` for each peer."""
    for engine in (headway, *peers):
        note(f"{case.name}: warming up {engine.about['engine']}")
        engine.tokens_per_s(case, WARM_STEPS)
    pairs = [Pairs() for _ in peers]
    for index in range(rounds):
        for peer, pair in zip(peers, pairs, strict=True):
            pair.headway.append(headway.tokens_per_s(case))
            pair.peer.append(peer.tokens_per_s(case))
        note(f"{case.name}: round {index + 1} of {rounds}: " + ", ".join(f"{p.ratios[-1]:.2f}x" for p in pairs))
    return pairs


def table(results: dict[str, list[Pairs]], names: Sequence[str]) -> str:
    """Markdown. `names`: of the peers, in their order."""
    head = ["tokens/s", "Headway", *names, *(f"ratio to {name.rpartition(' ')[0]}" for name in names)]
    lines = [head, ["---"] * len(head)]
    for case, pairs in results.items():
        ours = spread([speed for pair in pairs for speed in pair.headway], "")
        lines.append([case, ours, *(spread(p.peer, "") for p in pairs), *(spread(p.ratios, "x") for p in pairs)])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def spread(values: Sequence[float], unit: str) -> str:
    median, least, most = (f"{number(value)}{unit}" for value in (statistics.median(values), min(values), max(values)))
    return f"**{median}** ({least} - {most})"


def engines(options: argparse.Namespace, model: Path, cases: Sequence[Case]) -> list[list[str]]:
    """Commands of Headway's driver and then of each peer's."""
    room = max(case.sequences * (case.context + case.steps + 256) for case in cases)  # tokens; blocks are whole
    shared = ["--threads", str(options.threads)]
    sized = [*shared, "--room", str(room)]
    commands = [[sys.executable, str(HERE / "peers_headway.py"), str(model), *sized]]
    if options.openvino:
        vocabulary = inspect_model(model, EngineSettings()).vocab
        driver = [options.openvino, str(HERE / "peers" / "openvino_driver.py"), str(model)]
        commands.append([*driver, *sized, "--vocabulary", str(vocabulary)])
    if options.llama:
        driver = [sys.executable, str(HERE / "peers" / "llama_driver.py"), options.llama, str(model)]
        commands.append([*driver, *shared])
    return commands


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks/peers.py", description=__doc__.splitlines()[0])
    parser.add_argument("--openvino", metavar="PYTHON", help="an interpreter that has openvino-genai")
    parser.add_argument("--llama", metavar="FILE", help="llama-batched-bench of llama.cpp")
    parser.add_argument("--model", "-m", help="a GGUF file; default: Headway's default model")
    parser.add_argument("--threads", "-t", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--short", action="store_true", help="a quick look that proves nothing")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every round's figures")
    options = parser.parse_args()
    if not options.openvino and not options.llama:
        parser.error("give --openvino, --llama or both: benchmarks/README.md says how to get them")
    return options


def main() -> None:
    options = parse()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the drivers are stopped, too
    cases, rounds = (SHORT, SHORT_ROUNDS) if options.short else (CASES, options.rounds)
    model = resolve(options.model)
    with ExitStack() as stack:
        headway, *peers = [stack.enter_context(Driver(command)) for command in engines(options, model, cases)]
        results = {case.name: measure(case, headway, peers, rounds) for case in cases}
        about = [engine.about for engine in (headway, *peers)]
    if options.short:
        print("A short look that proves nothing.\n")
    print(table(results, [peer.about["engine"] for peer in peers]))
    print(f"\n{date.today().isoformat()}, {machine()['cpu']}, {options.threads} threads, {model.name}, ", end="")
    print(f"{rounds} rounds: **median** (least - greatest).\n")
    for engine in about:
        print(f"- {engine['engine']}: {engine['isa']}; KV {engine['kv']}; {engine['note']}.")
    if options.json:
        figures = {name: [asdict(pair) for pair in pairs] for name, pairs in results.items()}
        whole = {"machine": machine(), "threads": options.threads, "engines": about, "tokens_per_s": figures}
        options.json.write_text(json.dumps(whole, indent=2) + "\n")


if __name__ == "__main__":
    main()
