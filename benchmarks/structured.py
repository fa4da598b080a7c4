"""What output by a grammar costs: 32 streams with and without, as tokens a second. `python benchmarks/structured.py`"""

import statistics
import time
from dataclasses import replace
from typing import Any

from headway import LLM, Params
from headway.core.config import load_settings

STREAMS = 32
TOKENS = 128
ROUNDS = 5
# None of them can be complete within so many tokens, so that all generate the same number.
FORMS: dict[str, dict[str, Any]] = {
    "records, keys forced": {
        "json": {
            "type": "array",
            "minItems": 500,
            "items": {
                "type": "object",
                "properties": {
                    "name": {"type": "string", "maxLength": 40},
                    "population": {"type": "integer", "minimum": 0, "maximum": 99_999_999},
                    "country_code": {"type": "string", "pattern": "^[A-Z]{2}$"},
                    "is_capital": {"type": "boolean"},
                },
                "required": ["name", "population", "country_code", "is_capital"],
                "additionalProperties": False,
            },
        }
    },
    "strings, nothing forced": {"json": {"type": "array", "minItems": 500, "items": {"type": "string"}}},
    "any JSON": {"json": {"type": "array", "minItems": 500}},
    "regex": {"regex": "([a-z ]{1,40}, [0-9]{1,6}\n){500}"},
}


def tokens_per_s(llm: LLM, params: Params) -> float:
    messages = [
        [{"role": "user", "content": f"List the cities of region {i} as JSON records."}] for i in range(STREAMS)
    ]
    start = time.perf_counter()
    done = llm.chat(messages, params, show_progress=False)
    elapsed = time.perf_counter() - start
    assert all(c.completion_tokens == TOKENS for c in done), "not the same number of tokens"
    return STREAMS * TOKENS / elapsed


def main() -> None:
    settings = load_settings(None, {"promise": {"itl_ms": 0.0}})
    with LLM(settings=settings, show_progress=False) as llm:
        plain = Params(max_tokens=TOKENS, temperature=0.0, ignore_eos=True)
        print(f"{STREAMS} streams of {TOKENS} tokens; medians of {ROUNDS} alternating rounds, tokens/s")
        print("| form | plain | by the grammar | ratio | of each round |")
        print("|---|---|---|---|---|")
        for name, form in FORMS.items():
            held = replace(plain, structured_outputs=form)
            tokens_per_s(llm, held)  # compiles, and fills the caches of both
            rounds = [(tokens_per_s(llm, plain), tokens_per_s(llm, held)) for _ in range(ROUNDS)]
            free, bound = (statistics.median(side) for side in zip(*rounds, strict=True))
            ratios = [b / f for f, b in rounds]
            shown = ", ".join(f"{r:.2f}" for r in ratios)
            print(f"| {name} | {free:.0f} | {bound:.0f} | {statistics.median(ratios):.2f} | {shown} |", flush=True)


if __name__ == "__main__":
    main()
