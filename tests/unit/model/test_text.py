"""The text half of a model."""

from collections.abc import Callable
from pathlib import Path

import pytest

from headway.core.errors import InvalidRequest, ModelError
from headway.model.text import load_text

ModelWriter = Callable[..., Path]


def test_the_default_model(default_model: Path) -> None:
    text = load_text(default_model)
    assert (text.name, text.context, text.vocab_size) == ("SmolLM2-135M-Instruct.Q4_1", 8192, 49152)
    assert text.end_ids == text.tokenizer.end_ids == (0, 2)
    assert text.tokenizer.decode(text.tokenizer.encode("héllo", add_special=False)) == "héllo"


def test_a_folder(copy_model: ModelWriter) -> None:
    folder = copy_model("qwen2")
    text = load_text(folder)
    assert (text.name, text.context, text.vocab_size, text.end_ids) == ("qwen2", 256, 320, (0, 2))
    assert text.chat_template.render([{"role": "user", "content": "x"}]).startswith("<|im_start|>user\nx")


def test_a_hub_snapshot_is_called_by_its_repository(copy_model: ModelWriter, tmp_path: Path) -> None:
    snapshot = tmp_path / "models--org--some-name" / "snapshots" / "0123abcd"
    snapshot.parent.mkdir(parents=True)
    copy_model("qwen2").rename(snapshot)
    assert load_text(snapshot).name == "org/some-name"


def test_a_gguf_file_without_a_template_renders_none(make_gguf: ModelWriter) -> None:
    with pytest.raises(InvalidRequest, match="no chat template"):
        load_text(make_gguf()).chat_template.render([{"role": "user", "content": "x"}])


def test_an_unknown_architecture_is_refused(make_gguf: ModelWriter) -> None:
    with pytest.raises(ModelError, match="architecture mamba is not supported"):
        load_text(make_gguf(architecture="mamba"))
