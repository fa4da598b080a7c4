"""benchmarks/peers.py: drivers by turns, and llama.cpp's own benchmark read rightly. No peer is needed."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))
sys.path.append(str(Path(__file__).parents[3] / "benchmarks" / "peers"))

import llama_driver
import peers

BENCHMARKS = Path(peers.__file__).parent

DRIVER = f"""
import sys
sys.path.append({str(BENCHMARKS / "peers")!r})
from driver import claim_stdout, serve

class Stub:
    def about(self): return {{"engine": "Stub"}}
    def decode(self, sequences, context, steps): print("noise"); return steps / float(sys.argv[1])
    def prefill(self, tokens): raise ValueError("no prompts")

serve(Stub(), claim_stdout())
"""

BATCHED_BENCH = """#!/bin/sh
echo "$@" >> "$(dirname "$0")/asked"
echo "some other line"
echo '{"pp": 1, "t_pp": 9.0, "t_tg": 9.0}'
echo '{"pp": 1, "t_pp": 0.5, "t_tg": 0.25}'
"""


def test_engines_take_turns_and_each_pair_is_a_ratio() -> None:
    case = peers.Case("decode", 4, 128, 10)
    with (
        peers.Driver([sys.executable, "-c", DRIVER, "30"]) as headway,
        peers.Driver([sys.executable, "-c", DRIVER, "10"]) as peer,
    ):
        (pairs,) = peers.measure(case, headway, [peer], rounds=2)
        assert pairs.headway == pytest.approx([120, 120]) and pairs.peer == pytest.approx([40, 40])
        assert pairs.ratios == pytest.approx([3, 3])
        with pytest.raises(SystemExit, match="ValueError: no prompts"):
            peer.tokens_per_s(peers.Case("prefill", 1, 512, 0))


def test_an_engine_that_does_not_start_is_named() -> None:
    with pytest.raises(SystemExit, match="it ended"), peers.Driver([sys.executable, "-c", ""]):
        pass


def test_the_table_has_medians_and_spread() -> None:
    results = {"decode": [peers.Pairs([20.0, 30.0, 40.0], [10.0, 20.0, 10.0])]}
    assert peers.table(results, ["Peer 1"]).splitlines() == [
        "| tokens/s | Headway | Peer 1 | ratio to Peer |",
        "| --- | --- | --- | --- |",
        "| decode | **30.0** (20.0 - 40.0) | **10.0** (10.0 - 20.0) | **2x** (1.5x - 4x) |",
    ]


def test_llama_cpp_warms_up_and_its_last_line_counts(tmp_path: Path) -> None:
    binary = tmp_path / "llama-batched-bench"
    binary.write_text(BATCHED_BENCH)
    binary.chmod(0o755)
    llama = llama_driver.Llama(binary, "m.gguf", threads=2)
    assert llama.decode(8, 128, 64) == 0.25 and llama.prefill(512) == 0.5
    shared = "-m m.gguf -t 2 -tb 2 -c"
    assert (tmp_path / "asked").read_text().splitlines() == [
        f"{shared} 1536 -npp 128 -ntg 4,64 -npl 8 -pps --output-format jsonl",
        f"{shared} 513 -npp 512,512 -ntg 1 -npl 1 --output-format jsonl",
    ]
    binary.write_text("#!/bin/sh\necho broken >&2\nexit 3\n")
    with pytest.raises(RuntimeError, match="exit 3: broken"):
        llama.prefill(512)
