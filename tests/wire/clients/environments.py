"""The environments of the client programs, each made once under build/clients: `python environments.py` makes all."""

import hashlib
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
BUILD = HERE.parents[2] / "build" / "clients"
MAKING_S = 600


@dataclass(frozen=True)
class Environment:
    """What one client program runs in. `pinned`: the file in its folder that pins everything."""

    name: str
    folder: str
    pinned: str = "requirements.txt"

    @property
    def is_node(self) -> bool:
        return self.pinned.endswith(".json")

    @property
    def missing(self) -> str | None:
        """What this machine would need for it."""
        return "npm" if self.is_node and shutil.which("npm") is None else None

    def command(self) -> list[str]:
        """The start of a command line; makes the environment if there is none, or another was pinned."""
        place = BUILD / self.name
        pinned = HERE / self.folder / self.pinned
        stamp = hashlib.sha256(pinned.read_bytes()).hexdigest()
        made = place / "made"
        if not made.exists() or made.read_text() != stamp:
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir(parents=True)
            self._make(place, pinned)
            made.write_text(stamp)
        if not self.is_node:
            return [str(place / "bin" / "python"), str(HERE / self.folder / "program.py")]
        for source in (
            HERE / "cases.mjs",
            HERE / self.folder / "program.mjs",
        ):  # they find packages from where they lie
            shutil.copy(source, place)
        return ["node", str(place / "program.mjs")]

    def _make(self, place: Path, pinned: Path) -> None:
        """Raises CalledProcessError and TimeoutExpired."""
        if self.is_node:
            for name in ("package.json", pinned.name):
                shutil.copy(pinned.with_name(name), place)
            _run(["npm", "ci", "--no-audit", "--no-fund", "--loglevel", "error"], place)
            return
        _run([sys.executable, "-m", "venv", str(place)], place)
        pip = [str(place / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "install", "-q"]
        _run([*pip, "--no-deps", "-r", str(pinned)], place)


def _run(command: list[str], place: Path) -> None:
    subprocess.run(command, cwd=place, check=True, timeout=MAKING_S)


ENVIRONMENTS = [
    Environment("openai-python-2", "openai_python", "requirements-2.txt"),
    Environment("openai-python-3", "openai_python", "requirements-3.txt"),
    Environment("openai-node", "openai_node", "package-lock.json"),
    Environment("langchain-openai", "langchain_openai"),
    Environment("litellm", "litellm"),
    Environment("pydantic-ai", "pydantic_ai"),
    Environment("instructor", "instructor"),
    Environment("openai-agents", "openai_agents"),
    Environment("vercel-ai", "vercel_ai", "package-lock.json"),
]


if __name__ == "__main__":
    for number, environment in enumerate(ENVIRONMENTS, 1):
        print(f"[{number}/{len(ENVIRONMENTS)}] {environment.name} ... ", end="", flush=True)
        if environment.missing is not None:
            print(f"left out: {environment.missing} was not found", flush=True)
            continue
        begin = time.monotonic()
        environment.command()
        print(f"{time.monotonic() - begin:.0f} s", flush=True)
