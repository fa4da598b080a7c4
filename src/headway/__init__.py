"""Headway: an LLM inference server that keeps its latency promise. `headway.LLM` is the in-process engine."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headway.offline.llm import LLM, Completion, Params

__all__ = ["LLM", "Completion", "Params"]


def __getattr__(name: str) -> object:
    """Loads `LLM` and its types when first asked for: the server's parent process must stay light."""
    if name in __all__:
        return getattr(import_module("headway.offline.llm"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
