"""Which tokens end an answer: the union of everything the files say, for one source alone often forgets one."""

from collections.abc import Callable
from typing import Any

from headway.core.errors import ModelError
from headway.model.safetensors import read_json
from headway.model.spec import Checkpoint
from headway.model.template_text import template_text_of, token_text, tokenizer_config

# Ends of a document; no text follows them, whatever the files say.
_DOCUMENT_ENDS = ("<|endoftext|>", "<|end_of_text|>")
# Ends of an assistant's turn; they count if the chat template uses them.
_TURN_ENDS = (
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end|>",
    "<end_of_turn>",
    "<｜end▁of▁sentence｜>",
    "</s>",
)
# Harmony (gpt-oss): a turn is several messages, whose <|end|> is not the turn's.
_HARMONY_ENDS = ("<|return|>", "<|call|>")

CONTROL = 3  # a special token's type in GGUF (llama.cpp's llama_token_type)


def end_ids_of(checkpoint: Checkpoint) -> tuple[int, ...]:
    """End-token ids, ascending, without building a tokenizer (the engine needs no other part of one)."""
    if checkpoint.layout == "gguf":
        special, stated = _special_of_gguf(checkpoint), _stated_by_gguf(checkpoint)
    else:
        special = _special_of_folder(checkpoint)
        stated = _stated_by_folder(checkpoint, special.get)
    template = template_text_of(checkpoint) or ""
    harmony = _HARMONY_ENDS[0] in template
    names = _DOCUMENT_ENDS + (_HARMONY_ENDS if harmony else tuple(name for name in _TURN_ENDS if name in template))
    ids = [*stated, *(special.get(name) for name in names)]
    if harmony:
        ids = [index for index in ids if index != special.get("<|end|>")]
    return tuple(sorted({index for index in ids if type(index) is int and index >= 0}))


def _special_of_gguf(checkpoint: Checkpoint) -> dict[str, int]:
    names = checkpoint.metadata.get("tokenizer.ggml.tokens") or []
    types = checkpoint.metadata.get("tokenizer.ggml.token_type") or []
    return {name: index for index, (name, type_) in enumerate(zip(names, types, strict=False)) if type_ == CONTROL}


def _stated_by_gguf(checkpoint: Checkpoint) -> list[Any]:
    return [checkpoint.metadata.get(f"tokenizer.ggml.{key}_token_id") for key in ("eos", "eot", "eom")]


def _special_of_folder(checkpoint: Checkpoint) -> dict[str, int]:
    path = checkpoint.path / "tokenizer.json"
    if not path.is_file():
        return {}
    try:
        return {
            token["content"]: token["id"] for token in read_json(path).get("added_tokens") or [] if token["special"]
        }
    except (TypeError, KeyError) as error:
        raise ModelError(f"{path}: malformed added_tokens ({error!r})") from error


def _stated_by_folder(checkpoint: Checkpoint, id_of: Callable[[str], int | None]) -> list[Any]:
    generation = checkpoint.path / "generation_config.json"
    stated: list[Any] = []
    for config in (checkpoint.metadata, read_json(generation) if generation.is_file() else {}):
        ids = config.get("eos_token_id")
        stated += ids if isinstance(ids, list) else [ids]
    eos = token_text(tokenizer_config(checkpoint.path).get("eos_token"))
    return [*stated, None if eos is None else id_of(eos)]
