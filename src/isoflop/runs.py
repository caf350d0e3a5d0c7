"""The folder of a run, read back."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from isoflop.errors import IsoflopError
from isoflop.files import read_json
from isoflop.model.gpt import GPT
from isoflop.plan import Plan


def finite(value: float | None) -> float | None:
    """The value, or None where JSON has no word for it."""
    return value if value is not None and abs(value) < float("inf") else None


@dataclasses.dataclass(frozen=True, kw_only=True)
class FinishedRun:
    """A run's folder, read back. `model` is None where the run diverged."""

    plan: Plan
    seed: int
    record: dict[str, Any]
    model: GPT | None

    @property
    def name(self) -> str:
        return f"{self.plan.arm}-{self.seed}"


def open_run(folder: Path, device: torch.device) -> FinishedRun:
    """Read a run of `train`. Raises IsoflopError where it is missing or half written."""
    missing = [name for name in ("run.json", "config.yaml", "history.csv") if not (folder / name).is_file()]
    if missing:
        raise IsoflopError(f"{folder}: not a complete run, it lacks {', '.join(missing)}; `dvc repro` makes it")
    plan, record = Plan.read(folder / "config.yaml"), read_json(folder / "run.json")
    model = None
    if record["status"] == "finished":
        model = GPT(plan.model)
        try:
            model.load_state_dict(load_file(folder / "model.safetensors"))
        except (OSError, RuntimeError, SafetensorError) as error:
            raise IsoflopError(
                f"{folder / 'model.safetensors'}: missing, cut short or of another shape ({error}); "
                f"`dvc checkout` or `dvc repro -s -f train@{plan.arm}-{record['seed']}` brings it back"
            ) from None
        model.to(device).eval()
    return FinishedRun(plan=plan, seed=record["seed"], record=record, model=model)
