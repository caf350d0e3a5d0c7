"""Where things lie. dvc.yaml names the same places for DVC; no other module spells a path."""

from __future__ import annotations

import os
from pathlib import Path

PARAMS = Path("params.yaml")
RAW = Path("data/raw")
TOKENS = Path("data/tokens")
STUDIES = Path("experiments")
PLANS = Path("experiments/plan")
RUNS = Path("experiments/runs")
EVALUATIONS = Path("experiments/eval")
SAMPLES = Path("experiments/samples")
REPORTS = Path("reports")


def main_checkout() -> Path:
    """The user's own checkout, also when DVC runs the stage in a temporary copy of it.

    DVC sets `DVC_ROOT` to the main checkout for `dvc exp run --temp` and queued experiments. What must
    outlive the copy (the MLflow store, checkpoints to resume from) lies under this folder.
    """
    return Path(os.environ.get("DVC_ROOT") or Path.cwd()).resolve()


def local() -> Path:
    """What belongs to this machine and outlives a stage: checkpoints to resume from, measured speeds.

    Outside DVC's outputs, because DVC deletes those before a stage runs.
    """
    return main_checkout() / ".isoflop"
