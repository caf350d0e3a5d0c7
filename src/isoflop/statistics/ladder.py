"""IsoFLOP curves: loss against model size at one compute budget, and the best size there. Pure functions.

Source: Hoffmann et al., "Training compute-optimal large language models", 2022, approach 2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from isoflop.errors import IsoflopError
from isoflop.statistics.intervals import CONFIDENCE, Interval

Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, eq=False)
class IsoflopFit:
    """bpb = a + b x + c x², x = ln(parameters) minus its mean, at one compute budget.

    `minimum` is the number of parameters at the lowest bpb, None unless it is a minimum inside the measured
    sizes. `interval` is for that size, cut at the measured sizes: `open_low`, `open_high` say where it runs
    into them. `grid` (parameters), `mean`, `low`, `high`: the fitted curve and its pointwise band. The band
    and the interval are None without a degree of freedom left.
    """

    coefficients: tuple[float, float, float]
    residual_sd: float | None
    minimum: float | None
    minimum_bpb: float | None
    interval: Interval | None
    open_low: bool
    open_high: bool
    grid: Array
    mean: Array
    low: Array | None
    high: Array | None


def isoflop_fit(
    parameters: ArrayLike,
    bpb: ArrayLike,
    *,
    confidence: float = CONFIDENCE,
    draws: int = 4000,
    seed: int = 0,
    points: int = 100,
) -> IsoflopFit:
    """Parabola in ln(parameters) through the runs of one budget (every size and seed), with a bootstrap band.

    parameters, bpb: [runs]. The bootstrap is parametric and draws the residual variance anew each time (s²
    df / chi²), so that with few runs it agrees with the t interval, where resampling runs would be too
    narrow. Runs count as independent, which is cautious for the minimum if a seed moves all sizes alike.
    Raises IsoflopError on NaN, sizes that are not positive, or fewer than three sizes.
    """
    n, y = np.asarray(parameters, float), np.asarray(bpb, float)
    if n.shape != y.shape or n.ndim != 1 or not np.all(np.isfinite(y)) or not np.all(np.isfinite(n)):
        raise IsoflopError("isoFLOP curve: parameters and bpb must be finite lists of one length")
    if np.any(n <= 0) or len(np.unique(n)) < 3:
        raise IsoflopError(f"isoFLOP curve: a parabola needs three model sizes above zero, found {np.unique(n)}")
    centre = float(np.log(n).mean())
    ends = np.log([n.min(), n.max()]) - centre
    x = np.linspace(ends[0], ends[1], points)
    design = np.vander(np.log(n) - centre, 3, increasing=True)
    beta = np.linalg.lstsq(design, y)[0]
    df = len(y) - 3
    minimum, minimum_bpb = _inner_minimum(beta, ends)
    band = _bootstrap(design, y, beta, x, ends, confidence, draws, seed) if df > 0 else None
    return IsoflopFit(
        coefficients=(float(beta[0]), float(beta[1]), float(beta[2])),
        residual_sd=float(np.sqrt(np.sum((y - design @ beta) ** 2) / df)) if df > 0 else None,
        minimum=None if minimum is None else math.exp(minimum + centre),
        minimum_bpb=minimum_bpb,
        interval=None if band is None else Interval(*(math.exp(v + centre) for v in band.where)),
        open_low=band is not None and bool(band.where.low <= ends[0]),
        open_high=band is not None and bool(band.where.high >= ends[1]),
        grid=np.exp(x + centre),
        mean=np.vander(x, 3, increasing=True) @ beta,
        low=None if band is None else band.low,
        high=None if band is None else band.high,
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class _BootstrapBand:
    where: Interval
    low: Array
    high: Array


def _bootstrap(
    design: Array, y: Array, beta: Array, x: Array, ends: Array, confidence: float, draws: int, seed: int
) -> _BootstrapBand:
    rng = np.random.default_rng(seed)
    df = len(y) - 3
    rss = float(np.sum((y - design @ beta) ** 2))
    sigma = np.sqrt(rss / rng.chisquare(df, draws))
    root = np.linalg.cholesky(np.linalg.inv(design.T @ design))
    b = beta + sigma[:, None] * (rng.standard_normal((draws, 3)) @ root.T)  # [draws, 3]
    tails = [(1 - confidence) / 2, (1 + confidence) / 2]
    low, high = np.quantile(b @ np.vander(x, 3, increasing=True).T, tails, axis=0)
    lowest = np.quantile(_lowest(b, ends), tails)
    return _BootstrapBand(where=Interval(float(lowest[0]), float(lowest[1])), low=low, high=high)


def _lowest(b: Array, ends: Array) -> Array:
    """Where each parabola [draws, 3] is lowest between the ends: a vertex inside, or one of the ends."""
    at_ends = b @ np.vander(ends, 3, increasing=True).T
    best = ends[np.argmin(at_ends, axis=1)]
    convex = b[:, 2] > 0
    vertex = -b[:, 1] / np.where(convex, 2 * b[:, 2], 1.0)
    return np.where(convex, np.clip(vertex, ends[0], ends[1]), best)


def _inner_minimum(beta: Array, ends: Array) -> tuple[float | None, float | None]:
    if beta[2] <= 0:
        return None, None
    vertex = float(-beta[1] / (2 * beta[2]))
    if not ends[0] < vertex < ends[1]:
        return None, None
    return vertex, float(beta[0] - beta[1] ** 2 / (4 * beta[2]))
