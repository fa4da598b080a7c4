"""A process that loads spoiled model files under limits of memory and time, and says which are not refused well.

Arguments: a .gguf file or a folder, a folder to write in, a seed, how many. Each case's number goes to stderr before it
is tried, so that whoever started this knows where it ended. A line of JSON on stdout for each case that went wrong.
"""

import json
import random
import resource
import shutil
import signal
import sys
import traceback
from pathlib import Path

from file_mutations import folders, gguf_files

from headway.core.config import EngineSettings
from headway.core.errors import ModelError
from headway.model.inspection import inspect_model
from headway.model.load import load_runner
from headway.model.text import load_text

SETTINGS = EngineSettings(threads=1, kv_memory_mb=4, max_sequences=4, max_step_tokens=64, weights_cache=False)
ROOM = 384 << 20  # bytes of address space beyond what sound files of some hundred kilobytes have taken
LONGEST_S = 30  # of one case; the process is killed by SIGALRM
LONGEST_MESSAGE = 2100
TOKENS = b"tokenizer.ggml.tokens"  # a file with these has a tokenizer


def load(path: Path, with_text: bool) -> None:
    """All that a server and `headway models` read of a model, and a few steps of it."""
    if with_text:
        load_text(path)
    inspect_model(path, SETTINGS)
    load_runner(path, SETTINGS).close()


def problem_of(path: Path, with_text: bool) -> str | None:
    try:
        load(path, with_text)
    except ModelError as error:
        cause = error.__cause__
        if isinstance(cause, MemoryError):
            return f"took all memory: {error}"
        named = str(path) in error.message
        return None if named and len(error.message) < LONGEST_MESSAGE else f"unclear: {error.message[:1000]}"
    except BaseException:  # a panic of a library in Rust is no Exception
        return traceback.format_exc()[-1500:]
    return None


def address_space() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def main(source: Path, work: Path, seed: str, count: int) -> None:
    at = work / source.name
    if source.is_dir():
        shutil.copytree(source, at)
    else:
        shutil.copy(source, at)
    with_text = (source / "tokenizer.json").is_file() or (source.is_file() and TOKENS in source.read_bytes())
    load(at, with_text)  # sound as it is
    limit = address_space() + ROOM
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    files = (folders if source.is_dir() else gguf_files)(source, at, random.Random(f"{seed}/{source.name}"))
    for number, path in zip(range(count), files, strict=False):
        print(number, file=sys.stderr, flush=True)
        signal.alarm(LONGEST_S)
        problem = problem_of(path, with_text)
        signal.alarm(0)
        if problem is not None:
            print(json.dumps({"case": number, "problem": problem}), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
