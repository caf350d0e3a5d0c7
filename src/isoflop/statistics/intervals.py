"""Arm against control over a few seeds: pure functions of plain numbers.

Conventions
- Values are bits per byte (bpb), lower is better. A difference is arm minus control: negative, the arm is
  better.
- `{seed: value}` holds finished runs only. NaN and infinity are refused: the caller leaves diverged seeds out
  and counts them.
- `None` means "not available" (one seed has no spread). NaN never comes out.
- Intervals and tests are Student's t: at n = 4 a percentile bootstrap covers about 80 % where it promises
  95 %, and a permutation test of five pairs cannot go below p = 1/16.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtri, stdtr, stdtrit

from isoflop.errors import IsoflopError

CONFIDENCE = 0.95
_ROUNDING = 1e-12  # relative to the values: a spread below this is rounding, not noise

Seeds = Mapping[int, float]


class Interval(NamedTuple):
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class NoiseFloor:
    """What seeds alone do: the spread of one arm. `interval` is for sd (chi-square, assumes normal seeds)."""

    n: int
    mean: float | None
    sd: float | None
    interval: Interval | None


@dataclass(frozen=True, kw_only=True)
class Difference:
    """Arm minus control with its t interval and two-sided p. `df` is real: Welch's is not an integer."""

    n_control: int
    n_arm: int
    difference: float | None
    se: float | None
    df: float | None
    interval: Interval | None
    p: float | None


@dataclass(frozen=True, kw_only=True)
class Pairs:
    """Over the seeds that both arms finished; `welch` beside it over all seeds, ignoring the pairs.

    `correlation` of the paired values needs three seeds (with two it is always 1 or -1). `noise_floors` is
    the difference in units of the control's sd.
    """

    seeds: tuple[int, ...]
    paired: Difference
    welch: Difference
    correlation: float | None
    noise_floors: float | None


def finite(values: Seeds, what: str) -> None:
    """Refuse NaN and infinity. Raises IsoflopError that names `what`, the seed and the value."""
    for seed, value in values.items():
        if not math.isfinite(value):
            raise IsoflopError(
                f"{what}, seed {seed}: {value} is not a finite number; leave a diverged run out and count it"
            )


def t_interval(estimate: float, se: float, df: float, confidence: float = CONFIDENCE) -> Interval:
    """estimate ± t(df) · se."""
    assert 0 < confidence < 1
    half = float(stdtrit(df, 0.5 + confidence / 2)) * se
    return Interval(estimate - half, estimate + half)


def noise_floor(control: Seeds, confidence: float = CONFIDENCE) -> NoiseFloor:
    """Standard deviation (n - 1) over seeds with its chi-square interval. Raises IsoflopError on NaN."""
    finite(control, "control")
    n = len(control)
    if n == 0:
        return NoiseFloor(n=0, mean=None, sd=None, interval=None)
    values = np.fromiter(control.values(), float)
    if n == 1:
        return NoiseFloor(n=1, mean=float(values[0]), sd=None, interval=None)
    sd = sample_sd(values)
    tail = (1 - confidence) / 2
    # chdtri takes the upper tail: the larger quantile bounds sd from below.
    low, high = (sd * math.sqrt((n - 1) / float(chdtri(n - 1, q))) for q in (tail, 1 - tail))
    return NoiseFloor(n=n, mean=float(values.mean()), sd=sd, interval=Interval(low, high))


def paired(control: Seeds, arm: Seeds, confidence: float = CONFIDENCE) -> Pairs:
    """Mean difference over shared seeds with its t interval; Welch's over all seeds beside it.

    Raises IsoflopError on NaN.
    """
    finite(control, "control")
    finite(arm, "arm")
    seeds = tuple(sorted(control.keys() & arm.keys()))
    c, a = (np.array([group[s] for s in seeds]) for group in (control, arm))
    floor = noise_floor(control).sd
    result = _paired_difference(c, a, confidence)
    in_floors = None if result.difference is None or not floor else result.difference / floor
    spread = len(seeds) >= 3 and sample_sd(c) > 0 and sample_sd(a) > 0
    return Pairs(
        seeds=seeds,
        paired=result,
        welch=_welch(control, arm, confidence),
        correlation=float(np.corrcoef(c, a)[0, 1]) if spread else None,
        noise_floors=in_floors,
    )


def sample_sd(values: NDArray[np.float64]) -> float:
    """n - 1 in the denominator; exactly 0 where the values differ by rounding alone."""
    sd = float(values.std(ddof=1))
    return unless_rounding(sd, float(np.abs(values).max()))


def unless_rounding(x: float, scale: float) -> float:
    """x, or exactly 0 where it is nothing but the rounding of numbers as large as `scale`."""
    return x if abs(x) > _ROUNDING * scale else 0.0


def t_test(
    difference: float, se: float, df: float, scale: float, confidence: float
) -> tuple[Interval | None, float | None]:
    """Interval and two-sided p. Without any spread p is 1 where nothing differs and None where something does."""
    if se == 0:
        return (None, None) if unless_rounding(difference, scale) else (Interval(0.0, 0.0), 1.0)
    return t_interval(difference, se, df, confidence), 2 * float(stdtr(df, -abs(difference) / se))


def _paired_difference(c: NDArray[np.float64], a: NDArray[np.float64], confidence: float) -> Difference:
    n = len(c)
    if n < 2:
        difference = float(a[0] - c[0]) if n else None
        return Difference(n_control=n, n_arm=n, difference=difference, se=None, df=None, interval=None, p=None)
    scale = float(max(np.abs(c).max(), np.abs(a).max()))
    difference = float(np.mean(a - c))
    se = unless_rounding(float(np.std(a - c, ddof=1)), scale) / math.sqrt(n)
    interval, p = t_test(difference, se, n - 1, scale, confidence)
    return Difference(n_control=n, n_arm=n, difference=difference, se=se, df=n - 1, interval=interval, p=p)


def _welch(control: Seeds, arm: Seeds, confidence: float) -> Difference:
    c, a = noise_floor(control), noise_floor(arm)
    difference = None if c.mean is None or a.mean is None else a.mean - c.mean
    if difference is None or c.sd is None or a.sd is None:
        return Difference(n_control=c.n, n_arm=a.n, difference=difference, se=None, df=None, interval=None, p=None)
    vc, va = c.sd**2 / c.n, a.sd**2 / a.n
    se = math.sqrt(vc + va)
    # Welch-Satterthwaite; without spread the degrees of freedom are never used.
    df = (vc + va) ** 2 / (vc**2 / (c.n - 1) + va**2 / (a.n - 1)) if se > 0 else None
    scale = max(abs(c.mean or 0), abs(a.mean or 0))
    interval, p = t_test(difference, se, df or 1, scale, confidence)
    return Difference(n_control=c.n, n_arm=a.n, difference=difference, se=se, df=df, interval=interval, p=p)
