"""Where each kind of checkpoint keeps its chat template and the tokens the template may name."""

from pathlib import Path
from typing import Any

from headway.core.errors import ModelError
from headway.model.safetensors import read_json
from headway.model.spec import Checkpoint

_GGUF_TOKENS = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}


def template_text_of(checkpoint: Checkpoint) -> str | None:
    """The model's chat template, None if it has none: GGUF metadata, chat_template.jinja or tokenizer_config.json."""
    if checkpoint.layout == "gguf":
        template = checkpoint.metadata.get("tokenizer.chat_template")
        return template if isinstance(template, str) else None
    jinja = checkpoint.path / "chat_template.jinja"
    try:
        if jinja.is_file():
            return jinja.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise ModelError(f"{jinja} cannot be read ({error})") from error
    return _chosen(tokenizer_config(checkpoint.path).get("chat_template"))


def special_tokens_of(checkpoint: Checkpoint) -> dict[str, str]:
    """bos_token, eos_token and the like, by the names templates use; those the files state."""
    if checkpoint.layout == "gguf":
        names = checkpoint.metadata.get("tokenizer.ggml.tokens") or []
        ids = {name: checkpoint.metadata.get(f"tokenizer.ggml.{key}_token_id") for name, key in _GGUF_TOKENS.items()}
        return {name: names[index] for name, index in ids.items() if type(index) is int and 0 <= index < len(names)}
    config = tokenizer_config(checkpoint.path)
    texts = {key: token_text(entry) for key, entry in config.items() if key.endswith("_token")}
    return {key: text for key, text in texts.items() if text is not None}


def tokenizer_config(folder: Path) -> dict[str, Any]:
    """tokenizer_config.json; empty if there is none."""
    path = folder / "tokenizer_config.json"
    return read_json(path) if path.is_file() else {}


def token_text(entry: Any) -> str | None:
    """The text of a token in tokenizer_config.json, where it is a string or an object with `content`."""
    text = entry.get("content") if isinstance(entry, dict) else entry
    return text if isinstance(text, str) else None


def _chosen(entry: Any) -> str | None:
    # Several templates may be given by name; transformers takes the one called default for chat.
    if isinstance(entry, list):
        entry = {item.get("name"): item.get("template") for item in entry if isinstance(item, dict)}.get("default")
    return entry if isinstance(entry, str) else None
