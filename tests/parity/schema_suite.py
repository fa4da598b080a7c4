"""JSON-Schema-Test-Suite through the grammar path, without a model. A script too: the table of docs/structured.md."""

import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import decoders, models, pre_tokenizers

from headway.core.config import LimitSettings
from headway.core.errors import HeadwayError
from headway.model.grammar import Grammars
from headway.model.tokenizer import Tokenizer
from headway.serving.structured import WHITESPACE, grammar_source

SUITE = Path(__file__).parent / "json_schema_suite"
# Files whose tests need what no request can have: other documents by URL, and a vocabulary of its own.
MOST_ORDERS = 2000  # of an instance's keys


@dataclass
class Counts:
    """Of one file. Cases are pairs of schema and instance."""

    cases: int = 0
    refused: int = 0  # whose schema we refuse
    refused_by_library: int = 0  # whose schema llguidance refuses by itself
    accepted: int = 0  # valid instances
    rejected: int = 0  # invalid ones
    wrong: list[str] = field(default_factory=list)  # a valid one rejected or an invalid one accepted

    def add(self, other: "Counts") -> None:
        for name in ("cases", "refused", "refused_by_library", "accepted", "rejected"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.wrong += other.wrong


class Suite:
    """A token to each byte: what is accepted is a matter of the grammar alone."""

    def __init__(self) -> None:
        names = ["</s>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
        backend = tokenizers.Tokenizer(models.BPE({name: i for i, name in enumerate(names)}, []))
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        backend.decoder = decoders.ByteLevel()
        backend.add_special_tokens(["</s>"])
        self._tokenizer = Tokenizer(backend, None, (0,))
        self._grammars = Grammars(self._tokenizer, len(names), (0,))
        self._limits = LimitSettings()

    def files(self) -> dict[str, Counts]:
        return {str(path.relative_to(SUITE)): self.file(path) for path in sorted(SUITE.rglob("*.json"))}

    def file(self, path: Path) -> Counts:
        counts = Counts()
        for group in json.loads(path.read_text()):
            self._group(group, counts)
        return counts

    def _group(self, group: dict[str, Any], counts: Counts) -> None:
        counts.cases += len(group["tests"])
        try:
            self._grammars.compile(_by_library(group["schema"]))
        except HeadwayError:
            counts.refused_by_library += len(group["tests"])
        try:
            source = grammar_source("json_schema", group["schema"], self._limits, "schema")
            matcher = self._grammars.compile(source)
        except HeadwayError:
            counts.refused += len(group["tests"])
            return
        for test in group["tests"]:
            taken = any(self._accepts(matcher, text) for text in spellings(test["data"]))
            counts.accepted += taken and test["valid"]
            counts.rejected += not taken and not test["valid"]
            if taken != test["valid"]:
                counts.wrong.append(f"{group['description']}: {test['description']} (valid: {test['valid']})")

    def _accepts(self, matcher: Any, text: str) -> bool:
        ids = self._tokenizer.encode(text, add_special=False)
        matcher.reset()
        return matcher.try_consume_tokens(list(ids)) == len(ids) and matcher.is_accepting()


def spellings(value: Any) -> Iterator[str]:
    """The instance as JSON text, with its keys in every order and its numbers in the usual ways."""
    return itertools.islice(_spellings(value), MOST_ORDERS)


def _spellings(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for names in itertools.permutations(value):
            for inner in itertools.product(*[list(itertools.islice(_spellings(value[n]), 50)) for n in names]):
                pairs = zip(names, inner, strict=True)
                yield "{" + ",".join(f"{json.dumps(n, ensure_ascii=False)}:{v}" for n, v in pairs) + "}"
    elif isinstance(value, list):
        for inner in itertools.product(*[list(itertools.islice(_spellings(v), 50)) for v in value]):
            yield "[" + ",".join(inner) + "]"
    else:
        yield json.dumps(value, ensure_ascii=False)
        if isinstance(value, float) and value.is_integer():
            yield str(int(value))


def _by_library(schema: Any) -> str:
    options = {"whitespace_pattern": WHITESPACE}
    given = {**schema, "x-guidance": options} if isinstance(schema, dict) else schema
    return json.dumps({"grammars": [{"json_schema": given}]})


def _row(name: str, c: Counts) -> str:
    cells = (name, c.cases, c.refused, c.refused_by_library, c.accepted, c.rejected, len(c.wrong))
    return f"| {' | '.join(map(str, cells))} |"


def main() -> None:
    total = Counts()
    print("| tests | cases | refused | by llguidance alone | valid, accepted | invalid, rejected | wrong |")
    print("|---|---|---|---|---|---|---|")
    for name, counts in Suite().files().items():
        total.add(counts)
        print(_row(name, counts))
    print(_row("all", total))
    for line in total.wrong:
        print("wrong:", line)


if __name__ == "__main__":
    main()
