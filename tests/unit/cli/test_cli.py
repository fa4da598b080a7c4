"""The command as a user runs it."""

import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

from headway import LLM, Params

HEADWAY = [sys.executable, "-m", "headway"]


def headway(*args: str, env: dict[str, str] | None = None, text: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*HEADWAY, *args], input=text, capture_output=True, text=True, timeout=60, env={**os.environ, **(env or {})}
    )


def expected(model: Path, prompt: str, max_tokens: int) -> str:
    with LLM(str(model)) as llm:
        params = Params(max_tokens=max_tokens, temperature=0.0)
        return llm.chat([{"role": "user", "content": prompt}], params, show_progress=False)[0].text


def test_run_answers_as_the_offline_api_does(default_model: Path) -> None:
    text = expected(default_model, "Name three fruits.", 20)
    given = headway("run", "Name three fruits.", "--model", str(default_model), "--max-tokens", "20")
    assert given.returncode == 0, given.stderr
    assert given.stdout == text + "\n"
    piped = headway("run", "-", "--model", str(default_model), "--max-tokens", "20", text="Name three fruits.")
    assert piped.stdout == given.stdout


def test_errors_are_one_line_and_say_what_to_do(tmp_path: Path) -> None:
    for args, expected in [
        (("run", "x", "--model", "/no/such/model"), "no model at /no/such/model"),
        (("run", "x", "--config", str(tmp_path / "none.toml")), "no such config file"),
        (("serve", "--policy", "best"), "batching.policy"),
        (("serve", "--port", "99999"), "server.port"),
    ]:
        done = headway(*args)
        assert done.returncode != 0
        assert expected in done.stderr
        assert "Traceback" not in done.stderr


def test_an_impossible_instruction_set_is_refused(default_model: Path) -> None:
    done = headway("run", "x", "--model", str(default_model), env={"HEADWAY_ISA": "quantum"})
    assert done.returncode == 1
    assert "HEADWAY_ISA=quantum" in done.stderr
    assert "portable" in done.stderr


def test_ctrl_c_stops_the_answer_but_not_the_chat(default_model: Path) -> None:
    """On a real terminal: interrupt a long answer, ask again, leave."""
    main, side = pty.openpty()
    chat = subprocess.Popen(
        [*HEADWAY, "chat", "--model", str(default_model), "--temperature", "0", "--max-tokens", "4000"],
        stdin=side, stdout=side, stderr=side, start_new_session=True,
    )  # fmt: skip
    os.close(side)
    try:
        wait_for(main, b"> ")
        os.write(main, b"Write an endless story about every animal you know.\n")
        wait_for(main, b"\n", more_than=200)
        os.kill(chat.pid, signal.SIGINT)
        wait_for(main, b"\r\n> ")
        os.write(main, b"/new\n")
        wait_for(main, b"> ")
        os.write(main, b"Hi\n")
        wait_for(main, b"Hello.*\r\n> ")
        os.write(main, b"/exit\n")
        assert chat.wait(timeout=30) == 0
    finally:
        chat.kill()
        chat.wait()
        os.close(main)


def wait_for(terminal: int, text: bytes, more_than: int = 0) -> None:
    """Reads until what matches `text` has come, and more than so many bytes."""
    seen, end = b"", time.monotonic() + 60
    while not (re.search(text, seen, re.DOTALL) and len(seen) > more_than):
        assert time.monotonic() < end, seen
        seen += os.read(terminal, 4096)
