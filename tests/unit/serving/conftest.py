import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # for gate_rig
sys.path.insert(0, str(Path(__file__).parents[2] / "simulation"))  # for rig
sys.path.insert(0, str(Path(__file__).parents[2] / "wire"))
