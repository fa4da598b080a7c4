"""`headway run` and `headway chat` with --server, as a user runs them."""

import json
import os
import signal
import subprocess
import sys
import threading
from typing import Any

import pytest
from script_server import Reply, error, script_server, stream, whole

HEADWAY = [sys.executable, "-m", "headway"]
MODELS = whole({"data": [{"id": "m"}]})


def chunk(text: str = "", finish: str | None = None) -> str:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": finish}
    return "data: " + json.dumps({"id": "c-7", "choices": [choice]})


def said(*texts: str) -> Reply:
    return stream(*map(chunk, texts), chunk(finish="stop"), "data: [DONE]")


def headway(*args: str, text: str = "", key: str | None = None) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, **({"HEADWAY_API_KEY": key} if key else {})}
    return subprocess.run([*HEADWAY, *args], input=text, capture_output=True, text=True, timeout=60, env=env)


def test_run_asks_the_server() -> None:
    with script_server([MODELS, error(429, "busy", retry_after_ms="10"), said("Hel", "lo")]) as script:
        done = headway("run", "Hi", "--server", script.url, "--seed", "7", key="sk-1")
    assert (done.returncode, done.stdout) == (0, "Hello\n"), done.stderr
    assert done.stderr == "headway: busy; trying again in 1 s\n"
    body: dict[str, Any] = script.bodies[2]
    del body["stream_options"]
    assert body == {
        "messages": [{"role": "user", "content": "Hi"}],
        "max_tokens": 1024,
        "temperature": 0.0,
        "seed": 7,
        "model": "m",
        "stream": True,
    }
    assert script.seen[2].headers["authorization"] == "Bearer sk-1"


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (error(401, "no such key"), "headway: no such key\n"),
        (error(429, "full", retry_after="90"), "headway: full (try again in 90 s)\n"),
        (stream(chunk("a"), ending="fin"), "headway: the stream broke off: "),
    ],
)
def test_what_went_wrong_is_one_line(reply: Reply, message: str) -> None:
    with script_server([reply]) as script:
        done = headway("run", "Hi", "--server", script.url, "--model", "m")
    assert done.returncode == 1 and done.stderr.startswith(message) and done.stderr.count("\n") == 1


def test_options_of_the_other_kind_are_refused() -> None:
    done = headway("run", "Hi", "--server", "http://127.0.0.1:1", "--config", "headway.toml")
    assert done.returncode == 2 and "--config" in done.stderr
    assert "is not a url" in headway("run", "Hi", "--server", "ftp://a").stderr


def test_a_conversation() -> None:
    """It goes on after an error, without what was not answered."""
    with script_server([said("A"), error(400, "too long"), said("C")]) as script:
        done = headway("chat", "--server", script.url, "--model", "m", "--system", "S", text="a\nb\nc\n/exit\n")
    assert done.returncode == 0
    assert done.stdout == "> A\n> > C\n> "
    assert "headway: too long (/new begins anew)" in done.stderr
    assert [message["content"] for message in script.bodies[2]["messages"]] == ["S", "a", "A", "c"]


def test_ctrl_c_stops_the_answer_but_not_the_chat() -> None:
    """Also while nothing comes; the server hears of it, and what was said stays in the conversation."""
    begun = stream(f"id: c-7-1\n{chunk('One')}", ending="alive")
    with script_server([begun, whole({}), said("Two")]) as script:
        chat = subprocess.Popen(
            [*HEADWAY, "chat", "--server", script.url, "--model", "m"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        killer = threading.Timer(60, chat.kill)
        killer.start()
        try:
            assert chat.stdin is not None and chat.stdout is not None
            chat.stdin.write(b"a\n")
            chat.stdin.flush()
            seen = b""
            while not seen.endswith(b"One"):
                seen += chat.stdout.read(1)
            chat.send_signal(signal.SIGINT)
            out, _ = chat.communicate(b"b\n/exit\n", timeout=30)
        finally:
            killer.cancel()
            chat.kill()
            chat.wait()
    assert (chat.returncode, seen + out) == (0, b"> One\n> Two\n> ")
    assert script.seen[1].method == "DELETE"
    assert [message["content"] for message in script.bodies[2]["messages"]] == ["a", "One", "b"]
