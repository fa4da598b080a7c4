"""What is asked: random words of stated lengths, or the prompts of a file."""

import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from headway.core.errors import InvalidRequest

Range = tuple[int, int]

# Each is one token, with its leading space, in the vocabularies of GPT, Llama, Qwen and SmolLM.
_TEXT = (
    "time people year way day man thing woman life child world school state family student group country problem "
    "hand part place case week company system program question work government number night point home water room "
    "mother area money story fact month lot right study book eye job word business issue side kind head house "
    "service friend father power hour game line end member law car city community name president team minute idea "
    "body information back parent face others level office door health person art war history party result change "
    "morning reason research girl guy moment air teacher force education food land river"
)
WORDS = _TEXT.split()


@dataclass(frozen=True, slots=True)
class Workload:
    """`input_tokens` and `output_tokens` are drawn uniformly, both ends included. `prompts` replaces the words."""

    model: str
    chat: bool = True
    input_tokens: Range = (64, 192)
    output_tokens: Range = (64, 192)
    prompts: tuple[str, ...] = ()
    ignore_eos: bool = True
    extra: dict[str, Any] = field(default_factory=dict)  # merged into every body
    seed: int = 0

    def body(self, index: int, input_tokens: int | None = None, output_tokens: int | None = None) -> tuple[bytes, int]:
        """The JSON body of request `index` and the output tokens it asks for; a trace gives the lengths."""
        rng = random.Random(f"{self.seed}/{index}")
        words = rng.randint(*self.input_tokens)
        asked = rng.randint(*self.output_tokens) if output_tokens is None else output_tokens
        if self.prompts:
            text = self.prompts[rng.randrange(len(self.prompts))]
        else:
            text = " ".join(rng.choices(WORDS, k=words if input_tokens is None else input_tokens))
        body: dict[str, Any] = {"model": self.model}
        if self.chat:
            body["messages"] = [{"role": "user", "content": text}]
        else:
            body["prompt"] = text
        body |= {"max_tokens": asked, "stream": True, "stream_options": {"include_usage": True}}
        if self.ignore_eos:
            body["ignore_eos"] = True
        return msgspec.json.encode(body | self.extra), asked


def parse_range(text: str, option: str) -> Range:
    """A-B or A, in tokens."""
    low, _, high = text.partition("-")
    try:
        span = int(low), int(high or low)
    except ValueError:
        span = (0, 0)
    if not 1 <= span[0] <= span[1]:
        raise InvalidRequest(f"{option}: {text!r} is not a range of tokens such as 64-192")
    return span


def read_prompts(path: Path) -> tuple[str, ...]:
    """JSON lines with `turns` (the first is taken) or `prompt`; any other file has one prompt a line."""
    try:
        lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
        prompts = tuple(map(_prompt, lines)) if path.suffix == ".jsonl" else tuple(lines)
    except OSError as error:
        raise InvalidRequest(f"prompts {path}: {error.strerror}") from None
    except (KeyError, IndexError, TypeError, ValueError, msgspec.DecodeError) as error:
        raise InvalidRequest(f"prompts {path}: a line has neither `turns` nor `prompt` ({error!r})") from None
    if not prompts:
        raise InvalidRequest(f"prompts {path}: the file is empty")
    return prompts


def _prompt(line: str) -> str:
    row = msgspec.json.decode(line)
    return str(row["turns"][0] if "turns" in row else row["prompt"])
