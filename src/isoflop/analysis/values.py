"""Readings of collected runs that more than one part of the analysis needs. NaN and infinity become None."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from isoflop.collected import CollectedArm, CollectedRun
from isoflop.statistics.curves import Curve, curve
from isoflop.statistics.intervals import NoiseFloor, noise_floor


def number(value: float | None) -> float | None:
    """The value as JSON can hold it: None where it is missing or not finite."""
    return float(value) if value is not None and math.isfinite(value) else None


def mean(values: Sequence[float | None]) -> float | None:
    """Mean of what is known; None where nothing is."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def bpb(run: CollectedRun) -> float | None:
    """Test bits per byte of a finished run; None where it diverged or the evaluation is not a number."""
    return None if run.diverged else number(run.bpb)


def finished(arm: CollectedArm) -> list[CollectedRun]:
    """Runs with a result, by seed."""
    return [run for run in arm.runs if bpb(run) is not None]


def by_seed(arm: CollectedArm) -> dict[int, float]:
    """Test bits per byte of the finished runs."""
    return {run.seed: value for run in arm.runs if (value := bpb(run)) is not None}


def spread(arm: CollectedArm) -> NoiseFloor:
    """Mean and standard deviation over the finished seeds."""
    return noise_floor(by_seed(arm))


def last_val(run: CollectedRun) -> float | None:
    """The last val bpb that the run's history has."""
    return next((value for row in reversed(run.history) if (value := number(row.get("val/bpb"))) is not None), None)


def val_curve(run: CollectedRun) -> Curve | None:
    """val bpb against training FLOPs; None where the run has no evaluation after its start."""
    points = {
        row["flops"]: row["val/bpb"]
        for row in run.history
        if number(row.get("val/bpb")) is not None and (number(row.get("flops")) or 0) > 0
    }
    return curve(list(points), list(points.values())) if points else None


def val_curves(arm: CollectedArm) -> dict[int, Curve]:
    """The curves of the finished runs that have one, by seed."""
    found = {run.seed: val_curve(run) for run in finished(arm)}
    return {seed: each for seed, each in found.items() if each is not None}


def labels(arms: Sequence[CollectedArm]) -> list[str]:
    """The label of each arm, made unique: an earlier arm may have had the name of one of today's."""
    count = Counter(arm.label for arm in arms)
    return [arm.label if count[arm.label] == 1 else f"{arm.label} ({arm.config_hash[:4]})" for arm in arms]
