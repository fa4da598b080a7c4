"""End ids are the union of everything the files say."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from headway.model.checkpoint import open_checkpoint
from headway.model.end_tokens import end_ids_of

ModelWriter = Callable[..., Path]

NO_TEMPLATE = {"chat_template": None, "eos_token": None}


@pytest.mark.parametrize(
    ("config", "generation", "tokenizer", "expected"),
    [
        # 0 is <|endoftext|>, which always ends; 1 <|im_start|>, 2 <|im_end|>
        ({"eos_token_id": None}, {"eos_token_id": None}, NO_TEMPLATE, (0,)),
        ({"eos_token_id": 7}, {"eos_token_id": None}, NO_TEMPLATE, (0, 7)),
        ({"eos_token_id": [7, 8]}, {"eos_token_id": [9, 8]}, NO_TEMPLATE, (0, 7, 8, 9)),
        ({"eos_token_id": None}, {"eos_token_id": None}, {**NO_TEMPLATE, "eos_token": "<|im_start|>"}, (0, 1)),
        ({"eos_token_id": None}, None, {**NO_TEMPLATE, "eos_token": {"content": "<|im_start|>"}}, (0, 1)),
        ({"eos_token_id": None}, None, {"eos_token": None}, (0, 2)),  # the chat template's <|im_end|>
    ],
)
def test_ends_of_a_folder(
    copy_model: ModelWriter,
    config: Mapping[str, Any],
    generation: Mapping[str, Any] | None,
    tokenizer: Mapping[str, Any],
    expected: tuple[int, ...],
) -> None:
    folder = copy_model("qwen2", config=config, generation_config=generation, tokenizer_config=tokenizer)
    assert end_ids_of(open_checkpoint(folder)) == expected


def test_ends_of_a_gguf_file(make_gguf: ModelWriter) -> None:
    special = {3: "<|endoftext|>", 4: "<|im_end|>", 5: "<|eot_id|>"}
    path = make_gguf(
        {
            "tokenizer.ggml.tokens": [special.get(index, str(index)) for index in range(40)],
            "tokenizer.ggml.token_type": [3 if index in special else 1 for index in range(40)],
            "tokenizer.ggml.eos_token_id": 30,
            "tokenizer.ggml.eot_token_id": 31,
            "tokenizer.ggml.eom_token_id": 32,
            "tokenizer.chat_template": "{{ messages }}<|im_end|>",
        }
    )
    assert end_ids_of(open_checkpoint(path)) == (3, 4, 30, 31, 32)


def test_a_message_of_harmony_does_not_end_the_turn(make_gguf: ModelWriter) -> None:
    special = {3: "<|endoftext|>", 4: "<|return|>", 5: "<|call|>", 6: "<|end|>"}
    path = make_gguf(
        {
            "tokenizer.ggml.tokens": [special.get(index, str(index)) for index in range(40)],
            "tokenizer.ggml.token_type": [3 if index in special else 1 for index in range(40)],
            "tokenizer.ggml.eos_token_id": 4,
            "tokenizer.ggml.eot_token_id": 6,
            "tokenizer.chat_template": "{{ messages }}<|end|><|call|><|return|>",
        }
    )
    assert end_ids_of(open_checkpoint(path)) == (3, 4, 5)


def test_a_file_without_ends_has_none(make_gguf: ModelWriter) -> None:
    assert end_ids_of(open_checkpoint(make_gguf())) == ()
