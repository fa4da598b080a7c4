"""The native core. A package, so that import rules can name it."""

from headway._native._ext import (
    BLOCK,
    LOGIT_ROWS,
    PACKING,
    Config,
    Core,
    Limits,
    Sampled,
    Sampling,
    best_isa,
    checksum,
    dequantise,
    pack,
    packed_bytes,
    probe,
    quantise,
)

__all__ = [
    "BLOCK",
    "LOGIT_ROWS",
    "PACKING",
    "Config",
    "Core",
    "Limits",
    "Sampled",
    "Sampling",
    "best_isa",
    "checksum",
    "dequantise",
    "pack",
    "packed_bytes",
    "probe",
    "quantise",
]
