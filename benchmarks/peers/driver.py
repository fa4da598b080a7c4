"""What every driver speaks: on stdin one JSON object a line, on stdout one answer each.

    {"do": "decode", "sequences": 8, "context": 128, "steps": 64}    {"seconds": 1.234}
    {"do": "prefill", "tokens": 512}                                 {"seconds": 0.567}

Before the first answer comes a line about the engine, {"engine": ..., "isa": ..., "kv": ..., "note": ...}. An answer
may be {"error": ...}. The standard library is all that is needed here: a peer's interpreter runs it.
"""

import json
import os
import sys
from typing import Protocol


class Engine(Protocol):
    """One engine with a model in it."""

    def about(self) -> dict[str, str]:
        """What it is: `engine` (name and version), `isa`, `kv` (how keys and values are kept), `note` (what is not
        comparable)."""

    def decode(self, sequences: int, context: int, steps: int) -> float:
        """Seconds of `steps` steps, in each of which `sequences` sequences that were prefilled with `context` tokens
        make one token. Each has keys and values of its own."""

    def prefill(self, tokens: int) -> float:
        """Seconds from a new prompt of so many random tokens to its first token."""


def serve(engine: Engine, answers: int) -> None:
    """Until stdin ends. `answers`: the file descriptor from `claim_stdout`."""
    with os.fdopen(answers, "w") as out:
        _say(out, engine.about())
        for line in sys.stdin:
            request = json.loads(line)
            verb = {"decode": engine.decode, "prefill": engine.prefill}[request.pop("do")]
            try:
                _say(out, {"seconds": verb(**request)})
            except Exception as error:  # whatever an engine raises is told, and ends the benchmark
                _say(out, {"error": f"{type(error).__name__}: {error}"})


def claim_stdout() -> int:
    """To be called before an engine is imported: what it prints goes to stderr from then on."""
    answers = os.dup(1)
    os.dup2(2, 1)
    return answers


def _say(out, what: dict) -> None:  # type: ignore[no-untyped-def]
    out.write(json.dumps(what) + "\n")
    out.flush()
