"""What the cost model has learned, kept on disk per model and machine: a restart predicts from its first step."""

import json
import logging
import os
import platform
import re
from pathlib import Path

from headway.model.source import cache_folder
from headway.scheduling.cost_model import ENOUGH, NAMES, CostModel

log = logging.getLogger(__name__)


def costs_path(fingerprint: str, threads: int) -> Path:
    """The fingerprint names weights, instruction set and KV type; a home folder may be shared by several machines."""
    machine = re.sub(r"[^\w.-]", "_", platform.node()) or "machine"
    return cache_folder() / "costs" / f"{fingerprint}-{threads}-{machine}.json"


def read_costs(path: Path) -> CostModel:
    """A fresh model where there is no file, or none of use."""
    try:
        seconds = json.loads(path.read_text())["seconds"]
        coefficients = [seconds[name] for name in NAMES]
    except FileNotFoundError:
        return CostModel()
    except (OSError, ValueError, KeyError, TypeError) as error:
        log.warning("%s cannot be read (%s): step times are learned anew", path, error)
        return CostModel()
    if not all(isinstance(c, float) and 0 <= c < 1e3 for c in coefficients):
        log.warning("%s holds no costs: step times are learned anew", path)
        return CostModel()
    return CostModel(tuple(coefficients))


def write_costs(path: Path, costs: CostModel) -> None:
    """Does nothing before enough was seen; a folder that cannot be written is no reason to fail."""
    if costs.observed < ENOUGH:  # it has learned nothing new
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(f".{os.getpid()}.part")
        part.write_text(
            json.dumps({"seconds": dict(zip(NAMES, costs.coefficients, strict=True)), "steps": costs.observed})
        )
        part.replace(path)
    except OSError as error:
        log.warning("what was learned of step times is not kept: %s", error)
