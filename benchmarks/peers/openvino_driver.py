"""OpenVINO GenAI, run by an interpreter that has it: its pipeline with continuous batching, with its own settings but
for the number of threads, the size of the pool, and the prefix cache.

The prefix cache is on, as in Headway, so that a prompt that is decoded from in every round is prefilled once.
"""

import argparse
import random
import time

from driver import claim_stdout, serve

ANSWERS = claim_stdout()

import numpy as np  # noqa: E402
import openvino  # noqa: E402
import openvino_genai as genai  # noqa: E402

BLOCK = 32  # tokens
SPARE = 8  # tokens before the first and after the last measured step


class OpenVino:
    def __init__(self, model: str, threads: int, room: int, vocabulary: int) -> None:
        """`room`: tokens of keys and values."""
        scheduler = genai.SchedulerConfig()
        scheduler.num_kv_blocks = -(-room // BLOCK)
        scheduler.enable_prefix_caching = True
        properties = {"INFERENCE_NUM_THREADS": threads}
        self._pipe = genai.ContinuousBatchingPipeline(model, scheduler, "CPU", properties)
        self._vocabulary = vocabulary
        self._random = random.Random(0)
        self._serial = 0

    def about(self) -> dict:
        core = openvino.Core()
        able = [name for name in core.get_property("CPU", "OPTIMIZATION_CAPABILITIES") if name != "EXPORT_IMPORT"]
        kinds = {core.get_property("CPU", f"{part}_CACHE_PRECISION").to_string() for part in ("KEY", "VALUE")}
        return {
            "engine": f"OpenVINO GenAI {genai.get_version().split('-')[0]}",
            "isa": f"chosen by its kernels (says {', '.join(able)})",
            "kv": " and ".join(sorted(kinds)),
            "note": "greedy; prompts in its own pieces of 256 tokens",
        }

    def decode(self, sequences: int, context: int, steps: int) -> float:
        prompts = [self._prompt(random.Random(f"{context}/{index}"), context) for index in range(sequences)]
        kept = [
            self._add(prompt, 1) for prompt in prompts
        ]  # in the prefix cache; a handle let go of cancels its request
        self._drain()
        del kept
        streams = [self._add(prompt, steps + SPARE) for prompt in prompts]
        begun: set[int] = set()
        while len(begun) < sequences:
            self._pipe.step()
            begun.update(index for index, stream in enumerate(streams) if stream.can_read())
        self._pipe.step()
        for stream in streams:
            self._made(stream)
        start = time.perf_counter()
        for _ in range(steps):
            self._pipe.step()
        seconds = time.perf_counter() - start
        made = sum(self._made(stream) for stream in streams)
        self._drain()
        if made != steps * sequences:
            raise RuntimeError(f"{made} tokens in {steps} steps of {sequences} sequences")
        return seconds

    def prefill(self, tokens: int) -> float:
        stream = self._add(self._prompt(self._random, tokens), 1)
        start = time.perf_counter()
        while not stream.can_read():
            self._pipe.step()
        seconds = time.perf_counter() - start
        self._drain()
        return seconds

    def _prompt(self, chance: random.Random, length: int) -> openvino.Tensor:
        return openvino.Tensor(np.array([[chance.randrange(self._vocabulary) for _ in range(length)]], dtype=np.int64))

    def _add(self, prompt: openvino.Tensor, tokens: int) -> genai.py_openvino_genai.GenerationHandle:
        self._serial += 1
        config = genai.GenerationConfig(max_new_tokens=tokens, ignore_eos=True, do_sample=False)
        return self._pipe.add_request(self._serial, prompt, config)

    def _drain(self) -> None:
        while self._pipe.has_non_finished_requests():
            self._pipe.step()

    @staticmethod
    def _made(stream: genai.py_openvino_genai.GenerationHandle) -> int:
        """Tokens that came since it was asked last."""
        made = 0
        while stream.can_read():
            made += sum(len(output.generated_ids) for output in stream.read().values())
        return made


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    for name in ("--threads", "--room", "--vocabulary"):
        parser.add_argument(name, type=int, required=True)
    serve(OpenVino(**vars(parser.parse_args())), ANSWERS)
