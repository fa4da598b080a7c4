"""Headway as `peers.py` measures it: the engine of `headway bench step`, greedy, with default settings."""

import argparse
import sys
from contextlib import closing
from pathlib import Path

sys.path.append(str(Path(__file__).parent / "peers"))
from driver import claim_stdout, serve

from headway.bench.engine_alone import EngineAlone
from headway.bench.sampling_share import GREEDY
from headway.core.config import EngineSettings, Settings
from headway.model.inspection import inspect_model
from headway.model.load import load_runner

NOTE = "greedy; of 32 prompts the first is computed, and its keys and values are copied for the others"


class Headway:
    def __init__(self, model: Path, threads: int, room: int) -> None:
        """`room`: tokens of keys and values."""
        engine = EngineSettings(threads=threads)
        pool_mb = (room * inspect_model(model, engine).kv_bytes_per_token >> 20) + 1
        engine = engine.model_copy(update={"kv_memory_mb": pool_mb})
        self._runner = load_runner(model, engine)
        self._kv = engine.kv_type
        self._alone = EngineAlone(self._runner, Settings(engine=engine), self._runner.copy_block)

    def about(self) -> dict[str, str]:
        isa = self._runner.info.fingerprint.split("-")[-2]
        return {"engine": "Headway", "isa": isa, "kv": self._kv, "note": NOTE}

    def decode(self, sequences: int, context: int, steps: int) -> float:
        return self._alone.decode(sequences, context, steps, GREEDY)

    def prefill(self, tokens: int) -> float:
        return self._alone.prefill(tokens)

    def close(self) -> None:
        self._runner.close()


if __name__ == "__main__":
    answers = claim_stdout()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--room", type=int, required=True)
    with closing(Headway(**vars(parser.parse_args()))) as engine:
        serve(engine, answers)
