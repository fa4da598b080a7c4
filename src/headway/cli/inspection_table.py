"""Prints what `headway models inspect` found."""

import json
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from headway.model.inspection import Inspection, TypeUse

if TYPE_CHECKING:
    from headway.bench.quality import Quality


def print_inspection(found: Inspection, quality: "Quality | None", *, as_json: bool) -> None:
    if as_json:
        extra = {} if quality is None else {"quality": quality.as_json()}
        print(json.dumps(found.as_json() | extra, indent=2))
        return
    table = Table("", "", box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_header=False)
    for name, value in _lines(found, quality):
        table.add_row(name, value)
    Console().print(table, highlight=False)


def _lines(found: Inspection, quality: "Quality | None") -> list[tuple[str, str]]:
    windows = f", windows of {', '.join(map(str, found.windows))} in some layers" if found.windows else ""
    lines = [
        ("model", found.path),
        ("family", found.family),
        ("weights", f"{found.weights / 1e6:,.1f} M"),
        (
            "layers",
            f"{found.layers} of {found.hidden}, feed-forward {found.ffn}; {found.heads} heads of {found.head_dim}, "
            f"{found.kv_heads} with keys and values",
        ),
        ("vocabulary", f"{found.vocab:,} tokens{', the head is the embedding' if found.tied else ''}"),
        ("context", f"{found.context:,} tokens{windows}"),
        ("types", _types(found.stored)),
    ]
    if found.computed != found.stored:
        lines.append(("quantised", _types(found.computed)))
    lines += [
        ("memory", f"{found.weight_bytes / 2**20:,.1f} MiB of matrices, packed"),
        (
            "KV",
            f"{found.kv_type}, {found.kv_bytes_per_token / 1024:,.1f} KiB a token; the pool holds {found.kv_tokens:,}",
        ),
    ]
    if quality is not None:
        lines.append(
            (
                "quality",
                f"{quality.same:.1%} of {quality.tokens:,} choices as in float32, "
                f"perplexity {quality.perplexity_ratio - 1:+.2%}",
            )
        )
    return lines


def _types(uses: dict[str, TypeUse]) -> str:
    most = sorted(uses.items(), key=lambda one: -one[1].weights)
    return ", ".join(f"{name} {use.weights / 1e6:,.1f} M in {use.tensors}" for name, use in most)
