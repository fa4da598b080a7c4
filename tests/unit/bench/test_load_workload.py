"""Request bodies: lengths, prompts, and the options that make them."""

import json
from pathlib import Path

import pytest

from headway.bench.load_http import Address
from headway.bench.load_options import Options, make_pacing, make_workload
from headway.bench.load_workload import WORDS, Workload, parse_range, read_prompts
from headway.core.errors import InvalidRequest


def test_lengths_are_drawn_and_fixed_by_the_seed() -> None:
    workload = Workload("m", input_tokens=(3, 5), output_tokens=(7, 9))
    drawn = [workload.body(i) for i in range(100)]
    assert drawn == [workload.body(i) for i in range(100)]
    bodies = [json.loads(body) for body, _ in drawn]
    assert {len(b["messages"][0]["content"].split()) for b in bodies} == {3, 4, 5}
    assert {b["max_tokens"] for b in bodies} == {7, 8, 9} == {asked for _, asked in drawn}
    assert all(b["stream"] and b["stream_options"] == {"include_usage": True} and b["ignore_eos"] for b in bodies)
    assert len(set(WORDS)) == len(WORDS)


def test_a_trace_gives_the_lengths() -> None:
    body, asked = Workload("m", chat=False, extra={"temperature": 0}).body(0, 11, 13)
    parsed = json.loads(body)
    assert (len(parsed["prompt"].split()), parsed["max_tokens"], asked, parsed["temperature"]) == (11, 13, 13, 0)


def test_prompts(tmp_path: Path) -> None:
    lines, rows = tmp_path / "p.txt", tmp_path / "p.jsonl"
    lines.write_text("one\n\ntwo\n")
    rows.write_text('{"turns": ["first", "second"]}\n{"prompt": "other"}\n')
    assert read_prompts(lines) == ("one", "two")
    assert read_prompts(rows) == ("first", "other")
    workload = make_workload(Options(rate=1, prompts=rows))
    asked = [json.loads(workload.body(i)[0]) for i in range(20)]
    assert {body["messages"][0]["content"] for body in asked} == {"first", "other"}
    assert not any("ignore_eos" in body for body in asked)
    rows.write_text("{}\n")
    for path in (rows, tmp_path / "missing"):
        with pytest.raises(InvalidRequest):
            read_prompts(path)


@pytest.mark.parametrize("text", ["", "a", "0", "5-3", "-4", "1-2-3"])
def test_wrong_ranges(text: str) -> None:
    with pytest.raises(InvalidRequest):
        parse_range(text, "--input-tokens")


def test_ranges() -> None:
    assert parse_range("64-192", "") == (64, 192)
    assert parse_range("8", "") == (8, 8)


@pytest.mark.parametrize(
    "options",
    [
        Options(),
        Options(rate=1, clients=1),
        Options(clients=1, burst="4:5"),
        Options(rate=0),
        Options(rate=float("nan")),
        Options(clients=2, requests=0),
        Options(trace="missing.csv:2"),
        Options(trace="missing.csv:0"),
    ],
)
def test_wrong_options(options: Options) -> None:
    with pytest.raises(InvalidRequest):
        make_pacing(options)


def test_default_bounds(tmp_path: Path) -> None:
    trace = tmp_path / "t:1.jsonl"  # a colon that is no speed
    trace.write_text('{"timestamp": 0, "input_length": 1, "output_length": 1}\n')
    assert make_pacing(Options(rate=1)).duration_s == 60
    assert make_pacing(Options(rate=1, requests=5)).duration_s is None
    assert make_pacing(Options(trace=str(trace))).duration_s is None


def test_wrong_workloads() -> None:
    for options in (Options(endpoint="embeddings"), Options(extra="[]"), Options(extra="{")):
        with pytest.raises(InvalidRequest):
            make_workload(options)


def test_addresses() -> None:
    assert Address.parse("http://h:8000") == Address("h", 8000, "/v1") == Address.parse("h:8000/v1/")
    assert Address.parse("http://[::1]/api").head("GET", "/models", "k") == (
        b"GET /api/v1/models HTTP/1.1\r\nHost: [::1]:80\r\nUser-Agent: headway-bench\r\nAuthorization: Bearer k\r\n"
    )
    for url in ("https://h", "ftp://h", "http://", "http://h:99999"):
        with pytest.raises(InvalidRequest):
            Address.parse(url)
