"""From a path to a runner: the only place that knows which runners there are."""

from pathlib import Path

from headway.core.config import EngineSettings
from headway.core.errors import ModelError
from headway.model.architectures.registry import architecture_of
from headway.model.checkpoint import open_checkpoint
from headway.model.native_runner import NativeRunner
from headway.model.quantised import Exact
from headway.model.self_check import check_sense


def load_runner(path: Path, settings: EngineSettings) -> NativeRunner:
    """Reads and packs the weights, and tries them. ModelError says what is wrong with the files or the settings.

    The file's pages are let go of as soon as they are packed.
    """
    checkpoint = open_checkpoint(path)
    try:
        runner = NativeRunner(checkpoint, architecture_of(checkpoint), settings)
    finally:
        checkpoint.close()
    try:
        check_sense(runner, path)
    except ModelError:
        runner.close()
        raise
    return runner


def load_exact_runner(path: Path, settings: EngineSettings) -> NativeRunner:
    """The same model with every weight, and every input of a matrix, in float32: what others are measured by."""
    checkpoint = open_checkpoint(path)
    exact = settings.model_copy(update={"quantize": "none", "weights_cache": False, "kv_type": "f16"})
    try:
        return NativeRunner(checkpoint, Exact(architecture_of(checkpoint)), exact)
    finally:
        checkpoint.close()
