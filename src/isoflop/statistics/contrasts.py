"""Several arms against one control in a single fit of arm + seed, and Holm's adjustment over the family."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from isoflop.statistics.intervals import CONFIDENCE, Interval, Seeds, finite, sample_sd, t_test, unless_rounding


@dataclass(frozen=True, kw_only=True)
class Contrast:
    """One arm against the control in the fit of all arms. `n` counts the seeds shared with the control.

    `spread` is the sd of this arm's own paired differences over the one that the pooled fit implies: far
    from 1 (twice, half) warns that the pooled spread does not describe this arm.
    """

    n: int
    difference: float | None
    se: float | None
    df: int
    interval: Interval | None
    p: float | None
    spread: float | None


@dataclass(frozen=True, kw_only=True)
class Pooled:
    """The fit value = arm + seed + residual; `residual_sd` pools all arms, on `df` degrees of freedom."""

    residual_sd: float | None
    df: int
    contrasts: Mapping[str, Contrast]


def pooled(control: Seeds, arms: Mapping[str, Seeds], confidence: float = CONFIDENCE) -> Pooled:
    """Every arm against the control by least squares on arm + seed, residual variance pooled over arms.

    Seeds may be missing anywhere. With one arm this is the paired t test. An arm that shares fewer than two
    seeds with the control has no interval, one that shares none has no difference either. The pooled
    variance assumes that runs are equally noisy in every arm. Simulated with three arms at 3 and 5 seeds,
    one arm twice as noisy keeps the familywise error of Holm's rule near 5 %, four times as noisy takes it
    to 9 to 12 %: `Contrast.spread` says where that is doubtful. Raises IsoflopError on NaN.
    """
    finite(control, "control")
    for name, values in arms.items():
        finite(values, f"arm {name}")
    groups = _linked(control, arms)
    estimates, variances, rss, df = _two_way(control, list(groups.values()))
    scale = _scale([control, *groups.values()])
    residual_sd = unless_rounding(math.sqrt(rss / df), scale) if df > 0 else None
    position = {name: i for i, name in enumerate(groups)}
    contrasts = {}
    for name, values in arms.items():
        shared = sorted(control.keys() & values.keys())
        difference = se = interval = p = spread = None
        if shared:
            i = position[name]
            difference = float(estimates[i])
            if len(shared) >= 2 and residual_sd is not None:
                se = residual_sd * math.sqrt(variances[i])
                interval, p = t_test(difference, se, df, scale, confidence)
                own = sample_sd(np.array([values[s] - control[s] for s in shared]))
                spread = own / (math.sqrt(2) * residual_sd) if residual_sd > 0 else None
        contrasts[name] = Contrast(
            n=len(shared), difference=difference, se=se, df=df, interval=interval, p=p, spread=spread
        )
    return Pooled(residual_sd=residual_sd, df=df, contrasts=contrasts)


def holm(p_values: Mapping[str, float | None]) -> dict[str, float | None]:
    """Holm's step-down adjustment. None (nothing was tested) stays None and does not count in the family.

    Source: S. Holm, "A simple sequentially rejective multiple test procedure", 1979.
    """
    tested = sorted((p, name) for name, p in p_values.items() if p is not None)
    adjusted: dict[str, float | None] = dict.fromkeys(p_values)
    highest = 0.0
    for rank, (p, name) in enumerate(tested):
        highest = max(highest, min(1.0, (len(tested) - rank) * p))
        adjusted[name] = highest
    return adjusted


def _linked(control: Seeds, arms: Mapping[str, Seeds]) -> dict[str, Seeds]:
    """The arms tied to the control by a chain of shared seeds: only their contrasts can be estimated."""
    linked: dict[str, Seeds] = {}
    seeds = set(control)
    while found := {name: v for name, v in arms.items() if name not in linked and seeds & v.keys()}:
        linked |= found
        seeds.update(*found.values())
    return linked


def _two_way(control: Seeds, arms: Sequence[Seeds]) -> tuple[NDArray[np.float64], NDArray[np.float64], float, int]:
    """Least squares on seed and arm effects: contrasts, their variances / residual variance, RSS, df."""
    groups = [control, *arms]
    seeds = sorted(set().union(*groups))
    rows = [(i, seeds.index(s), v) for i, group in enumerate(groups) for s, v in group.items()]
    if not arms:
        return np.zeros(0), np.zeros(0), 0.0, 0
    X = np.zeros((len(rows), len(seeds) + len(arms)))
    y = np.array([v for _, _, v in rows])
    for r, (i, s, _) in enumerate(rows):
        X[r, s] = 1
        if i:
            X[r, len(seeds) + i - 1] = 1
    beta = np.linalg.lstsq(X, y)[0]
    variances = np.diag(np.linalg.inv(X.T @ X))
    rss = float(np.sum((y - X @ beta) ** 2))
    return beta[len(seeds) :], variances[len(seeds) :], rss, X.shape[0] - X.shape[1]


def _scale(groups: Iterable[Seeds]) -> float:
    return max((abs(v) for group in groups for v in group.values()), default=0.0)
