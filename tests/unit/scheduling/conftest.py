"""Makes the rig importable in every pytest import mode."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "simulation"))
