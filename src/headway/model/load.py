"""From a path to a runner: the only place that knows which runners there are."""

from pathlib import Path

from headway.core.config import EngineSettings
from headway.model.architectures.registry import architecture_of
from headway.model.checkpoint import open_checkpoint
from headway.model.native_runner import NativeRunner


def load_runner(path: Path, settings: EngineSettings) -> NativeRunner:
    """Reads and packs the weights. ModelError says what is wrong with the files or the settings.

    The file's pages are let go of as soon as they are packed.
    """
    checkpoint = open_checkpoint(path)
    try:
        return NativeRunner(checkpoint, architecture_of(checkpoint), settings)
    finally:
        checkpoint.close()
