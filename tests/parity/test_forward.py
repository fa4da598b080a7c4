"""The forward pass against transformers in float32 and llama.cpp, on tiny random models of each family."""

import json
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from numpy.typing import NDArray
from oracle import FIXTURES, Teacher, all_logits, open_runner

from headway.bench.quality import Reference, judge
from headway.core.config import EngineSettings
from headway.model.load import load_exact_runner

FOUR_BITS = "gpt_oss_mxfp4"  # whose experts' inputs are 8 bits wide
FOLDERS = sorted(p.name for p in (FIXTURES / "hf").iterdir() if p.name != FOUR_BITS)
CONVERTED = sorted(  # the same models, by llama.cpp's converter
    p.stem for p in (FIXTURES / "converted").iterdir() if p.stem != FOUR_BITS
)
GGUFS = sorted(p.stem for p in (FIXTURES / "gguf").glob("*.gguf"))
# Largest difference to float32 of any logit (their standard deviation is 1.2): the KV cache is in half precision,
# and bf16 weights meet inputs rounded to bf16.
TOLERANCE = {"float32": 0.02, "float16": 0.02, "bfloat16": 0.2}


def arrays(path: Path) -> dict[str, NDArray[np.generic]]:
    with np.load(path) as data:
        return dict(data)


def sequences(data: dict[str, NDArray[np.int32]]) -> list[list[int]]:
    return [ids[:length].tolist() for ids, length in zip(data["prompts"], data["lengths"], strict=True)]


def rms(x: NDArray[np.float32]) -> float:
    return float(np.sqrt(np.mean(np.square(x))))


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("name", FOLDERS)
def test_folder_gives_the_logits_of_transformers(name: str) -> None:
    data = arrays(FIXTURES / "hf" / name / "expected.npz")
    runner = open_runner(FIXTURES / "hf" / name)
    config = json.loads((FIXTURES / "hf" / name / "config.json").read_text())
    check(runner, data, config.get("dtype") or config["torch_dtype"])
    runner.close()


@pytest.mark.parametrize("name", CONVERTED)
def test_converted_file_gives_the_logits_of_transformers(name: str) -> None:
    runner = open_runner(FIXTURES / "converted" / f"{name}.gguf")
    check(runner, arrays(FIXTURES / "hf" / name / "expected.npz"), "float16")
    runner.close()


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("path", [f"hf/{FOUR_BITS}", f"converted/{FOUR_BITS}.gguf"])
def test_four_bit_floats_give_the_logits_of_transformers(path: str) -> None:
    """Exactly, where every weight is unpacked to float32; nearly, with inputs of 8 bits."""
    data = arrays(FIXTURES / "hf" / FOUR_BITS / "expected.npz")
    exact = load_exact_runner(FIXTURES / path, EngineSettings(threads=2, kv_memory_mb=128, max_step_tokens=2048))
    check(exact, data, "float16")
    exact.close()
    runner = open_runner(FIXTURES / path)
    for i, logits in enumerate(all_logits(runner, sequences(data))):
        assert rms(logits - data["logits"][i, : len(logits)]) < 0.07  # of a standard deviation of 1.7
    runner.close()


def check(runner, data: dict[str, NDArray[np.int32]], stored: str) -> None:  # type: ignore[no-untyped-def]
    """Each position decoded alone, and prompts in one piece each followed by greedy tokens."""
    for i, logits in enumerate(all_logits(runner, sequences(data))):
        difference = np.abs(logits - data["logits"][i, : len(logits)])
        assert difference.max() < TOLERANCE[stored]
        assert rms(difference) < TOLERANCE[stored] / 6
    if stored != "bfloat16":
        assert greedy(runner, sequences(data), data["greedy"].shape[1]) == data["greedy"].tolist()


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("name", FOLDERS)
def test_eight_bit_keys_and_values_stay_near(name: str) -> None:
    data = arrays(FIXTURES / "hf" / name / "expected.npz")
    runner = open_runner(FIXTURES / "hf" / name, kv_type="int8")
    for i, logits in enumerate(all_logits(runner, sequences(data))):
        # of a standard deviation of 1.2; where a router is nearly undecided, another expert may be chosen
        assert rms(logits - data["logits"][i, : len(logits)]) < (0.15 if name == "mixtral" else 0.07)
    runner.close()


def greedy(runner, prompts: list[list[int]], count: int) -> list[list[int]]:  # type: ignore[no-untyped-def]
    """Continuations of all prompts at once, ragged."""
    teacher = Teacher(runner, prompts)
    out: list[list[int]] = [[] for _ in prompts]
    counts = [len(p) for p in prompts]
    for _ in range(count):
        for i, got in enumerate(teacher.advance(counts)):
            assert got is not None
            out[i].append(got[1])
            teacher.known[i].append(got[1])
        counts = [1] * len(prompts)
    return out


@pytest.mark.parametrize("name", GGUFS)
def test_gguf_gives_the_logits_of_llama_cpp(name: str) -> None:
    """Files that llama.cpp's own converter and quantiser made. `reference` is float32 on the dequantised weights: we
    must be as near to it as llama.cpp is, whose inputs to quantised matrices are 8 bits wide too."""
    data = arrays(FIXTURES / "gguf" / f"{name}.npz")
    runner = open_runner(FIXTURES / "gguf" / f"{name}.gguf")
    logits = all_logits(runner, sequences(data))
    ours = np.stack([logits[prompt][position] for prompt, position in data["rows"]])
    theirs = rms(data["logits"] - data["reference"])
    assert rms(ours - data["reference"]) < 1.2 * theirs + 0.003  # our KV cache is half, theirs was float32
    assert rms(ours - data["logits"]) < 2 * theirs + 0.003
    clear = [
        (row.argmax(), data["top1"][i, p])
        for i, rows in enumerate(logits)
        for p, row in enumerate(rows)
        if data["margin"][i, p] > 0.5
    ]
    assert len(clear) > 20
    assert all(a == b for a, b in clear)
    runner.close()


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize(
    "name",
    [
        "hf/mistral_window",
        "hf/qwen3_tied",
        "gguf/llama_llama3-q4_1.gguf",
        "gguf/qwen3_wide-q6_k.gguf",
        "hf/phi3_long",
        "hf/olmo2",
        "hf/smollm3",
        "converted/granite.gguf",
        "hf/gemma2",
        "hf/qwen2_moe",
        "converted/mixtral.gguf",
        "converted/gemma3.gguf",
        "hf/gpt_oss",
        "converted/gpt_oss_mxfp4.gguf",
    ],
)
@pytest.mark.parametrize("kv_type", ["int8", "f16"])
def test_batch_chunks_and_threads_change_no_bit(name: str, kv_type: Literal["int8", "f16"]) -> None:
    path = FIXTURES / name
    rng = np.random.default_rng(3)
    with_one = open_runner(path, 1, kv_type)
    prompts = [rng.integers(0, with_one.info.vocab_size, length).tolist() for length in (1, 9, 40, 150)]
    alone = [all_logits(with_one, [p])[0] for p in prompts]
    with_one.close()
    for threads in (1, 2, 3, 4):
        runner = open_runner(path, threads, kv_type)
        teacher = Teacher(runner, prompts)
        while any(done < len(p) for done, p in zip(teacher.computed, prompts, strict=True)):
            counts = [
                int(min(rng.integers(0, 30), len(p) - done)) for done, p in zip(teacher.computed, prompts, strict=True)
            ]
            if not any(counts):
                continue
            for i, got in enumerate(teacher.advance(counts)):
                if got is not None:
                    np.testing.assert_array_equal(got[0], alone[i][teacher.computed[i] - 1])
        runner.close()


@pytest.mark.parametrize("kv_type", ["int8", "f16"])
def test_quality_of_the_default_model(default_model: Path, kv_type: Literal["int8", "f16"]) -> None:
    """3,108 tokens of English prose, teacher-forced: at least 97 % the same choices as float32 on the same weights, and
    its perplexity within 1 %."""
    data = arrays(FIXTURES / "quality.npz")
    windows = [ids[:length].tolist() for ids, length in zip(data["tokens"], data["lengths"], strict=True)]
    exact = Reference(
        [choices[: len(w)].tolist() for choices, w in zip(data["top1"], windows, strict=True)],
        [nll[: len(w) - 1].tolist() for nll, w in zip(data["nll"], windows, strict=True)],
    )
    runner = open_runner(default_model, kv_type=kv_type)
    quality = judge(runner, windows, exact)
    runner.close()
    assert quality.tokens >= 2000
    assert quality.same >= 0.97
    assert abs(quality.perplexity_ratio - 1) < 0.01
