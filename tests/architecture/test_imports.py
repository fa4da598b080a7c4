"""The parent process stays light. (The import rules are checked by lint-imports in `make check`.)"""

import subprocess
import sys

HEAVY = ("numpy", "fastapi", "tokenizers", "uvicorn", "torch", "headway._native", "prometheus_client", "httpx")


def test_the_supervisor_imports_nothing_heavy() -> None:
    code = (
        "import sys, headway.cli.main, headway.serving.supervisor, headway.model.source\n"
        f"print([m for m in {HEAVY!r} if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert out.stdout.strip() == "[]"
