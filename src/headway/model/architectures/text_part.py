"""The text part of a Hugging Face folder that reads images too, as a checkpoint of its own."""

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Literal

from headway.core.errors import ModelError
from headway.model.spec import Checkpoint, RawTensor

# Where the text part's tensors are, as transformers has named them before version 5 and since.
_OURS = re.compile(
    r"language_model\.(?P<old>(model|lm_head)\..+)|model\.language_model\.(?P<new>.+)|(?P<head>lm_head\..+)"
)
_OTHERS = re.compile(r"(model\.)?(vision_tower|multi_modal_projector)\..+")


class TextPart:
    """Shows `text_config`, over what transformers takes where it is silent, and the tensors of the text part."""

    layout: Literal["gguf", "hf"] = "hf"

    def __init__(self, whole: Checkpoint, defaults: Mapping[str, Any]) -> None:
        text = whole.metadata["text_config"]
        if not isinstance(text, Mapping):
            raise ModelError(f"model {whole.path}: text_config must be an object, not {text!r}")
        self._whole = whole
        self.path: Path = whole.path
        self.metadata: Mapping[str, Any] = {**defaults, **text}
        self.architecture = f"{whole.architecture}_text"
        self._names = {}
        for name in whole.names():
            if found := _OURS.fullmatch(name):
                self._names[found["old"] or found["head"] or f"model.{found['new']}"] = name
            elif not _OTHERS.fullmatch(name):
                self._names[name] = name

    def names(self) -> Collection[str]:
        """Those of the text part, as in a model of text alone; and whatever is in no known part."""
        return self._names.keys()

    def has(self, name: str) -> bool:
        return name in self._names

    def tensor(self, name: str) -> RawTensor:
        return self._whole.tensor(self._names.get(name, name))

    def close(self) -> None:
        self._whole.close()


def text_part_of(checkpoint: Checkpoint, defaults: Mapping[str, Any]) -> Checkpoint:
    """The checkpoint, or its text part where it has one. `defaults`: what holds where its text_config is silent."""
    if checkpoint.layout != "hf" or checkpoint.metadata.get("text_config") is None:
        return checkpoint
    return TextPart(checkpoint, defaults)
