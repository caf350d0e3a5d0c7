"""`study.ladder`: families of arms over several sizes and budgets, compared within one budget only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from isoflop.analysis.apart import names
from isoflop.analysis.arms import flops_of
from isoflop.analysis.values import by_seed, finished, spread
from isoflop.collected import Collected, CollectedArm
from isoflop.schema import plain
from isoflop.statistics.curves import compute_multiplier, curve
from isoflop.statistics.ladder import isoflop_fit

SPREAD = 0.02  # a budget holds within 1 % on either side: whole steps cannot meet it exactly
POINTS = 41  # of each fitted curve


def describe_ladder(collected: Collected) -> list[dict[str, Any]]:
    """The families in the order of params.yaml; empty where the study has no ladder.

    A rung that no run of this workspace or the store stands for is listed in `absent`.
    """
    told = []
    reference: list[CollectedArm] | None = None
    for family, wanted in collected.params.study.ladder.items():
        arms = [arm for arm in _rungs(collected) if names(arm) & set(wanted)]
        known = {name for arm in arms for name in names(arm)}
        told.append(
            {
                "name": family,
                "absent": [name for name in wanted if name not in known],
                "budgets": [_budget(group) for group in by_budget(arms)],
                "multiplier": _multiplier(reference, arms) if reference else None,
            }
        )
        reference = reference or arms
    return told


def by_budget(arms: Sequence[CollectedArm]) -> list[list[CollectedArm]]:
    """Arms in groups whose training FLOPs lie within 2 % of the group's lowest, the smallest budget first."""
    groups: list[list[CollectedArm]] = []
    for arm in sorted(arms, key=lambda arm: (flops_of(arm), arm.predicted["parameters"], arm.label)):
        if groups and flops_of(arm) <= (1 + SPREAD) * flops_of(groups[-1][0]):
            groups[-1].append(arm)
        else:
            groups.append([arm])
    return [sorted(group, key=lambda arm: (arm.predicted["parameters"], arm.label)) for group in groups]


def _rungs(collected: Collected) -> list[CollectedArm]:
    """Arms that may be part of a ladder: those of params.yaml that stand for themselves or for their grid."""
    roles = ("control", "planned", "exploratory", "rung")
    return [arm for arm in (*collected.arms, *collected.aside) if arm.role in roles]


def _budget(arms: Sequence[CollectedArm]) -> dict[str, Any]:
    """One budget of a family: its sizes, and the isoFLOP curve through all their runs."""
    fit, problem = _fit(arms)
    return {
        "flops": sum(flops_of(arm) for arm in arms) / len(arms),
        "rungs": [_rung(arm) for arm in arms],
        "fit": fit,
        "problem": problem,
    }


def _rung(arm: CollectedArm) -> dict[str, Any]:
    values = spread(arm)
    return {
        "label": arm.label,
        "parameters": arm.predicted["parameters"],
        "flops": flops_of(arm),
        "bpb": {"n": values.n, "mean": values.mean, "sd": values.sd},
        "by_seed": [{"seed": seed, "bpb": value} for seed, value in by_seed(arm).items()],
        "diverged": [run.seed for run in arm.runs if run not in finished(arm)],
        "missing": [seed for seed in arm.missing_seeds if seed not in {run.seed for run in arm.runs}],
    }


def _fit(arms: Sequence[CollectedArm]) -> tuple[dict[str, Any] | None, str | None]:
    points = [(arm.predicted["parameters"], value) for arm in arms for value in by_seed(arm).values()]
    sizes = {size for size, _ in points}
    if len(sizes) < 3:
        return None, f"{len(sizes)} of the 3 sizes that a parabola needs"
    fit = isoflop_fit([size for size, _ in points], [value for _, value in points], points=POINTS)
    curves = {"grid": fit.grid, "mean": fit.mean, "low": fit.low, "high": fit.high}
    band = None
    if fit.minimum is not None and fit.low is not None and fit.high is not None:
        at = np.log(fit.minimum)
        band = [float(np.interp(at, np.log(fit.grid), edge)) for edge in (fit.low, fit.high)]
    return {
        "runs": len(points),
        "sizes": len(sizes),
        "residual_sd": fit.residual_sd,
        "minimum": fit.minimum,
        "minimum_bpb": fit.minimum_bpb,
        "minimum_band": band,
        "interval": plain(fit.interval),
        "open_low": fit.open_low,
        "open_high": fit.open_high,
        **{name: None if values is None else [float(value) for value in values] for name, values in curves.items()},
    }, None


def _multiplier(reference: Sequence[CollectedArm], arms: Sequence[CollectedArm]) -> dict[str, Any] | None:
    """Compute multiplier from final values over the budgets, the first family as the control.

    Only where each family has one size at each budget; else which size stands for the family would be a choice
    made after the fact. Final values do not have the fault of curves along one run, which its learning-rate
    schedule flatters.
    """
    ours, theirs = (_final_curves(each) for each in (reference, arms))
    if not ours or not theirs or not ours.keys() & theirs.keys():
        return None
    told = {}
    for name, (control, arm) in {"control_needs": (ours, theirs), "arm_needs": (theirs, ours)}.items():
        found = plain(compute_multiplier(control, arm))
        found["by_seed"] = [{"seed": seed, "multiplier": value} for seed, value in found["by_seed"].items()]
        told[name] = found
    return told


def _final_curves(arms: Sequence[CollectedArm]) -> dict[int, Any]:
    """Final bpb against budget by seed, over the seeds that finished every rung; empty with two sizes at a budget."""
    groups = by_budget(arms)
    if len(groups) < 2 or any(len(group) > 1 for group in groups):
        return {}
    rungs = [(flops_of(group[0]), by_seed(group[0])) for group in groups]
    seeds = set.intersection(*(set(values) for _, values in rungs))
    return {seed: curve([flops for flops, _ in rungs], [values[seed] for _, values in rungs]) for seed in sorted(seeds)}
