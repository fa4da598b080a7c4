"""The text half of a model: what the API and the offline LLM need of it, without its weights."""

from dataclasses import dataclass
from pathlib import Path

from headway.model.architectures.registry import architecture_of
from headway.model.chat_template import ChatTemplate
from headway.model.checkpoint import open_checkpoint
from headway.model.template_text import special_tokens_of, template_text_of
from headway.model.tokenizer import Tokenizer, load_tokenizer


@dataclass(frozen=True, slots=True)
class TextModel:
    name: str  # what the model is called where no other name is configured
    context: int  # tokens
    vocab_size: int  # ids the model knows; a tokenizer may have fewer
    tokenizer: Tokenizer
    chat_template: ChatTemplate
    end_ids: tuple[int, ...]


def load_text(path: Path) -> TextModel:
    """Reads a GGUF file or a folder. ModelError as when loading its weights, though none is read."""
    checkpoint = open_checkpoint(path)
    try:
        spec = architecture_of(checkpoint).spec(checkpoint)
        tokenizer = load_tokenizer(checkpoint)
        template = ChatTemplate(template_text_of(checkpoint), special_tokens_of(checkpoint))
    finally:
        checkpoint.close()
    return TextModel(_name_of(path), spec.context, spec.vocab, tokenizer, template, tokenizer.end_ids)


def _name_of(path: Path) -> str:
    """The file's stem or the folder's name; of a snapshot in Hugging Face's cache, organisation/name."""
    path = path.absolute()
    if path.is_file():
        return path.stem
    kept = path.parent.parent.name
    if path.parent.name == "snapshots" and kept.startswith("models--"):
        return kept.removeprefix("models--").replace("--", "/")
    return path.name
