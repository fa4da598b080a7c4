"""From a path to a runner: the only place that knows which runners there are."""

from pathlib import Path

from headway.core.config import EngineSettings
from headway.model.architectures.registry import architecture_of
from headway.model.checkpoint import open_checkpoint
from headway.model.native_runner import NativeRunner
from headway.model.quantised import Exact


def load_runner(path: Path, settings: EngineSettings) -> NativeRunner:
    """Reads and packs the weights. ModelError says what is wrong with the files or the settings.

    The file's pages are let go of as soon as they are packed.
    """
    checkpoint = open_checkpoint(path)
    try:
        return NativeRunner(checkpoint, architecture_of(checkpoint), settings)
    finally:
        checkpoint.close()


def load_exact_runner(path: Path, settings: EngineSettings) -> NativeRunner:
    """The same model with every weight, and every input of a matrix, in float32: what others are measured by."""
    checkpoint = open_checkpoint(path)
    exact = settings.model_copy(update={"quantize": "none", "weights_cache": False, "kv_type": "f16"})
    try:
        return NativeRunner(checkpoint, Exact(architecture_of(checkpoint)), exact)
    finally:
        checkpoint.close()
