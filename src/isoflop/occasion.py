"""What `train` takes from params.yaml beside its plan: what the run is called, and how often it is saved.

Read when the run starts and watched by nobody: no weight depends on it, so that another study trains nothing anew.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from isoflop import paths
from isoflop.baseline import read_baseline
from isoflop.params import load_params, resolve_arm
from isoflop.plan import Plan


@dataclass(frozen=True, kw_only=True)
class Occasion:
    """For which study a run is made, under which names."""

    study: str
    label: str  # the arm, and what an experiment changed in it
    changes: dict[str, Any]  # dotted key -> value, as params.yaml has them for the arm
    checkpoint_s: float


def occasion(plan: Plan) -> Occasion:
    """The occasion of a run of `plan`. Raises IsoflopError where params.yaml no longer has its arm."""
    params = load_params(paths.PARAMS)
    arm = resolve_arm(params, plan.arm)
    return Occasion(
        study=params.study.name,
        label=read_baseline().label(plan.arm, plan.config),
        changes=arm.changes,
        checkpoint_s=arm.train.checkpoint_s,
    )
