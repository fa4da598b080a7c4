"""Opens whichever kind of checkpoint a path is."""

from pathlib import Path

from headway.model.gguf import GgufCheckpoint
from headway.model.safetensors import SafetensorsCheckpoint
from headway.model.spec import Checkpoint


def open_checkpoint(path: Path) -> Checkpoint:
    """A folder is read as Hugging Face lays it out, a file as GGUF. ModelError if it is not what it should be."""
    return SafetensorsCheckpoint(path) if path.is_dir() else GgufCheckpoint(path)
