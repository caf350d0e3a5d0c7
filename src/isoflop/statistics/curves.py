"""Loss curves against training compute, and what they say about compute and size. Pure functions.

FLOPs and parameters are compared as ratios, so everything interpolates in their logarithm. Nothing is
extrapolated: what lies outside the measured range is said to.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import isotonic_regression
from scipy.special import stdtrit

from isoflop.errors import IsoflopError
from isoflop.statistics.intervals import CONFIDENCE, Interval, t_interval

Array = NDArray[np.float64]
Range = Literal["measured", "beyond the measured range", "before the measured range"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Curve:
    """log_flops (natural log) ascending, bpb: [points]."""

    log_flops: Array
    bpb: Array


@dataclass(frozen=True, kw_only=True, eq=False)
class Band:
    """Mean over seeds at each point with its t interval; low and high are None with one seed."""

    n: int
    mean: Array
    low: Array | None
    high: Array | None


@dataclass(frozen=True, kw_only=True)
class Multiplier:
    """Compute that the control needs for the arm's final bpb / the arm's own: above 1, the arm saves compute.

    `estimate` is the geometric mean over seeds. It is None as soon as one seed has no value: the mean of
    the others would leave out the extreme ones. `by_seed` keeps every seed, with None where its value lies
    outside; `beyond` (the control never gets there: more than its budget) and `before` (it was there at its
    first evaluation) count them.
    """

    n: int
    estimate: float | None
    interval: Interval | None
    by_seed: Mapping[int, float | None]
    beyond: int
    before: int


def curve(flops: ArrayLike, bpb: ArrayLike) -> Curve:
    """Checked points of one run, in any order. A point at zero FLOPs (before training) has no log: left out.

    Raises IsoflopError on unequal lengths, NaN, negative or repeated FLOPs, or when no point is left.
    """
    x, y = np.asarray(flops, float), np.asarray(bpb, float)
    if x.shape != y.shape or x.ndim != 1:
        raise IsoflopError(f"curve: {x.size} FLOPs and {y.size} bpb must be two lists of one length")
    if not (np.all(np.isfinite(x)) and np.all(np.isfinite(y))):
        raise IsoflopError("curve: NaN or infinity among its points; leave out a diverged run and steps without bpb")
    if np.any(x < 0) or len(np.unique(x)) < len(x):
        raise IsoflopError("curve: FLOPs must be positive, each value once")
    order = np.argsort(x)
    order = order[x[order] > 0]
    if not len(order):
        raise IsoflopError("curve: no evaluation after the start of training")
    return Curve(log_flops=np.log(x[order]), bpb=y[order])


def common_grid(curves: Sequence[Curve], points: int = 100) -> Array:
    """Log-spaced FLOPs over the range that all curves cover; empty where they share none. [points]"""
    if not curves:
        return np.zeros(0)
    low = max(c.log_flops[0] for c in curves)
    high = min(c.log_flops[-1] for c in curves)
    return np.exp(np.linspace(low, high, points)) if low < high else np.zeros(0)


def interpolate(c: Curve, flops: ArrayLike) -> Array:
    """bpb at these FLOPs, linear in log FLOPs. Raises IsoflopError outside the curve's own range."""
    x = np.log(np.asarray(flops, float))
    slack = 1e-9  # exp(log(x)) may miss the end by rounding
    if np.any(~np.isfinite(x)) or np.any(x < c.log_flops[0] - slack) or np.any(x > c.log_flops[-1] + slack):
        first, last = np.exp(c.log_flops[[0, -1]])
        raise IsoflopError(f"curve: measured from {first:.3g} to {last:.3g} FLOPs, not beyond: use common_grid")
    return np.asarray(np.interp(x, c.log_flops, c.bpb))


def seed_band(values: ArrayLike, confidence: float = CONFIDENCE) -> Band:
    """values: [seeds, points] on a common grid. Raises IsoflopError on NaN or without a seed."""
    y = np.asarray(values, float)
    if y.ndim != 2 or not len(y) or not np.all(np.isfinite(y)):
        raise IsoflopError(f"band: finite values [seeds, points] with a seed at least, found shape {y.shape}")
    n, mean = len(y), y.mean(axis=0)
    if n < 2:
        return Band(n=n, mean=mean, low=None, high=None)
    half = float(stdtrit(n - 1, 0.5 + confidence / 2)) * y.std(axis=0, ddof=1) / math.sqrt(n)
    return Band(n=n, mean=mean, low=mean - half, high=mean + half)


def compute_at(c: Curve, bpb: float) -> tuple[float | None, Range]:
    """FLOPs at which a curve reaches this bpb, and whether it does within its range.

    Evaluations are noisy, so this reads the least-squares non-increasing fit, not the first crossing, which
    would be too early.
    """
    fit = _descending(c)
    if bpb > fit[0]:
        return None, "before the measured range"
    if bpb < fit[-1]:
        return None, "beyond the measured range"
    last = int(np.searchsorted(-fit, -bpb, side="right")) - 1  # on a flat stretch: its end
    if last == len(fit) - 1:
        return float(np.exp(c.log_flops[-1])), "measured"
    share = (fit[last] - bpb) / (fit[last] - fit[last + 1])
    x = c.log_flops[last] + share * (c.log_flops[last + 1] - c.log_flops[last])
    return float(np.exp(x)), "measured"


def compute_multiplier(
    control: Mapping[int, Curve], arm: Mapping[int, Curve], confidence: float = CONFIDENCE
) -> Multiplier:
    """Per shared seed, then a t interval on the log. One seed: no interval.

    Both ends are read from the non-increasing fits, so an arm equal to the control gets exactly 1. An arm
    that ends better than the control lies beyond the range at equal budgets; exchange the two to learn how
    much less compute it needs for the control's result. Along one run the learning-rate schedule flatters
    the end of the curve, so a multiplier near 1 is understated in size; curves of final values over several
    budgets (a ladder) do not have that fault.
    """
    by_seed: dict[int, float | None] = {}
    counts = {"measured": 0, "beyond the measured range": 0, "before the measured range": 0}
    for seed in sorted(control.keys() & arm.keys()):
        flops, where = compute_at(control[seed], float(_descending(arm[seed])[-1]))
        counts[where] += 1
        by_seed[seed] = None if flops is None else flops / float(np.exp(arm[seed].log_flops[-1]))
    n = len(by_seed)
    logs = np.log([m for m in by_seed.values() if m is not None])
    estimate = interval = None
    if n and len(logs) == n:
        estimate = float(np.exp(logs.mean()))
        if n >= 2:
            se = float(logs.std(ddof=1)) / math.sqrt(n)
            low, high = t_interval(float(logs.mean()), se, n - 1, confidence)
            # A spread too wide for a float is no information: exp(700) is as good as infinity.
            interval = Interval(math.exp(max(low, -700.0)), math.exp(min(high, 700.0)))
    return Multiplier(
        n=n,
        estimate=estimate,
        interval=interval,
        by_seed=by_seed,
        beyond=counts["beyond the measured range"],
        before=counts["before the measured range"],
    )


def _descending(c: Curve) -> Array:
    return np.asarray(isotonic_regression(c.bpb, increasing=False).x)
