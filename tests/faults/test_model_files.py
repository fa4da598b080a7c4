"""Model files made wrong at random: refused with a clear ModelError, or loaded; never a crash, a hang or all memory."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from json_mutations import Raw, dumped
from model_file_worker import load

from headway.core.errors import ModelError

WORKER = Path(__file__).with_name("model_file_worker.py")
CORPUS = Path(__file__).parent / "corpus" / "models.json"  # what once failed: [file, key, its value's text]
SHORT = {"DIGITS": "9" * 400, "LONG": '"' + "x" * 5000 + '"', "DEEP": "[" * 100_000 + "]" * 100_000}
SEED = "1"
CASES, MORE = 120, 5000
SOURCES = [
    "gguf/llama_llama3-q4_1.gguf",
    "gguf/qwen3_wide-q6_k.gguf",
    "converted/qwen2_moe.gguf",
    "converted/gemma3.gguf",
]
FOLDERS = ["hf/llama_llama3", "hf/gemma3", "hf/qwen3_moe", "hf/phi3_long", "hf/gpt_oss_mxfp4"]


def spoil(source: Path, work: Path, seed: str, count: int) -> None:
    work.mkdir()
    arguments = [sys.executable, str(WORKER), str(source), str(work), seed, str(count)]
    done = subprocess.run(arguments, capture_output=True, text=True)
    wrong = [json.loads(line) for line in done.stdout.splitlines()]
    said = "\n".join(f"case {case['case']}: {case['problem']}" for case in wrong[:20])
    assert not wrong, f"{source.name}: {len(wrong)} of {count}\n{said}"
    assert done.returncode == 0, f"{source.name} ended with {done.returncode}: {done.stderr[-2000:]}"


@pytest.mark.parametrize(("file", "key", "value"), json.loads(CORPUS.read_text()))
def test_a_model_that_once_failed_is_refused(
    parity_fixtures: Path, tmp_path: Path, file: str, key: str, value: str
) -> None:
    for name, text in SHORT.items():
        value = value.replace(name, text)
    folder = tmp_path / "model"
    shutil.copytree(parity_fixtures / "hf" / "llama_llama3", folder)
    held = json.loads((folder / file).read_text())
    (folder / file).write_text(dumped({**held, key: Raw(value)}))
    with pytest.raises(ModelError) as caught:
        load(folder, with_text=True)
    assert str(folder) in caught.value.message and len(caught.value.message) < 2100


@pytest.mark.parametrize("name", [*SOURCES, *FOLDERS])
def test_a_spoiled_model_is_refused(parity_fixtures: Path, tmp_path: Path, name: str) -> None:
    spoil(parity_fixtures / name, tmp_path / "work", SEED, CASES)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", [*SOURCES, *FOLDERS])
def test_many_spoiled_models_are_refused(parity_fixtures: Path, tmp_path: Path, name: str) -> None:
    spoil(parity_fixtures / name, tmp_path / "work", SEED + "long", MORE)
