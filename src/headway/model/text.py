"""The text half of a model: what the API and the offline LLM need of it, without its weights."""

from array import array
from dataclasses import dataclass, field
from pathlib import Path

from headway.core.errors import ModelError
from headway.model.answer_format import AnswerFormat, answer_format_of
from headway.model.architectures.registry import architecture_of
from headway.model.chat_template import ChatTemplate
from headway.model.checkpoint import open_checkpoint
from headway.model.spec import Checkpoint
from headway.model.template_text import special_tokens_of, template_text_of
from headway.model.tokenizer import Tokenizer, load_tokenizer

_PROMPT_END = 16  # tokens that may spell what opens or ends reasoning


@dataclass(frozen=True, slots=True)
class TextModel:
    name: str  # what the model is called where no other name is configured
    context: int  # tokens
    vocab_size: int  # ids the model knows; a tokenizer may have fewer
    tokenizer: Tokenizer
    chat_template: ChatTemplate
    end_ids: tuple[int, ...]
    answer_format: AnswerFormat = field(init=False)
    answer_tokenizer: Tokenizer = field(init=False)  # shows what answers are marked up with, special tokens too

    def __post_init__(self) -> None:
        format = answer_format_of(self.chat_template, self.tokenizer)
        object.__setattr__(self, "answer_format", format)
        object.__setattr__(self, "answer_tokenizer", self.tokenizer.showing(format.special))

    def end_of(self, prompt: "array[int]") -> str:
        """The last words of a prompt, by which its answer may begin inside of reasoning."""
        return self.answer_tokenizer.decode(prompt[-_PROMPT_END:])


def load_text(path: Path) -> TextModel:
    """Reads a GGUF file or a folder. ModelError as when loading its weights, though none is read."""
    checkpoint = open_checkpoint(path)
    try:
        spec = architecture_of(checkpoint).spec(checkpoint)
        tokenizer = load_tokenizer(checkpoint)
        template = _template_of(checkpoint)
    finally:
        checkpoint.close()
    return TextModel(_name_of(path), spec.context, spec.vocab, tokenizer, template, tokenizer.end_ids)


def _template_of(checkpoint: Checkpoint) -> ChatTemplate:
    try:
        return ChatTemplate(template_text_of(checkpoint), special_tokens_of(checkpoint))
    except ModelError as error:
        raise ModelError(f"model {checkpoint.path}: {error.message}") from error


def _name_of(path: Path) -> str:
    """The file's stem or the folder's name; of a snapshot in Hugging Face's cache, organisation/name."""
    path = path.absolute()
    if path.is_file():
        return path.stem
    kept = path.parent.parent.name
    if path.parent.name == "snapshots" and kept.startswith("models--"):
        return kept.removeprefix("models--").replace("--", "/")
    return path.name
