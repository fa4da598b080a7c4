"""The native core. A package, so that import rules can name it."""

from headway._native._ext import (
    BLOCK,
    LOGIT_ROWS,
    Config,
    Core,
    KvType,
    Limits,
    Sampled,
    Sampling,
    best_isa,
    kv_head_bytes,
    probe,
)

__all__ = [
    "BLOCK",
    "LOGIT_ROWS",
    "Config",
    "Core",
    "KvType",
    "Limits",
    "Sampled",
    "Sampling",
    "best_isa",
    "kv_head_bytes",
    "probe",
]
