"""Seconds until each stage's entry point is imported, and which heavy packages it waits for."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from typing import Any

from measure import ROOT

HEAVY = ("torch", "mlflow", "pandas", "scipy", "statsmodels", "matplotlib", "seaborn", "transformers", "dvc")
NEEDED = {  # by what the stage does
    "download": set[str](),
    "tokenize": set[str](),
    "plan": set[str](),
    "train": {"torch", "mlflow"},
    "evaluate": {"torch"},
    "sample": {"torch"},
    "collect": {"mlflow", "pandas", "scipy"},
    "report": {"pandas", "scipy", "matplotlib", "seaborn"},
}
MODULES = {**{f"isoflop.stages.{stage}": needed for stage, needed in NEEDED.items()}, "isoflop.engine.__main__": set()}


def measure(repeats: int) -> dict[str, Any]:
    """Median wall seconds of `python -c "import MODULE"`, less those of an interpreter that imports nothing."""
    bare = statistics.median(_run("pass")[0] for _ in range(repeats + 1))
    found: dict[str, Any] = {"python": {"seconds": bare}}
    for module, needed in MODULES.items():
        runs = [_run(f"import {module}") for _ in range(repeats + 1)][1:]  # the first fills the page cache
        loaded = set(runs[0][1])
        found[module] = {
            "seconds": statistics.median(seconds for seconds, _ in runs) - bare,
            "loads": sorted(loaded),
            "not_needed": sorted(loaded - needed),
        }
    return found


def _run(statement: str) -> tuple[float, list[str]]:
    program = f"import sys\n{statement}\nimport json\nprint(json.dumps([m for m in {HEAVY!r} if m in sys.modules]))"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env=environment, cwd=ROOT, check=True
    )
    seconds = time.perf_counter() - start
    loaded: list[str] = json.loads(done.stdout.splitlines()[-1])
    return seconds, loaded
