"""Noise from the choice of test stories, apart from the noise of seeds: pure functions of plain numbers.

The spread over seeds holds for the test split as it is; how far another sample of stories would move the
result is a second source of noise. Side by side they say whether more test text or more seeds would narrow
a difference.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from isoflop.errors import IsoflopError


@dataclass(frozen=True, kw_only=True)
class EvaluationNoise:
    """Bits per byte (or a difference of two) and its standard error over stories; None with one story."""

    bpb: float
    se: float | None
    stories: int


@dataclass(frozen=True, kw_only=True)
class NoiseShare:
    """`ratio`: variance from the choice of stories over variance from seeds. `combined_se` covers both."""

    ratio: float
    combined_se: float
    helps: Literal["more test text", "more seeds", "more of both"]


def evaluation_noise(bits: ArrayLike, story_bytes: ArrayLike) -> EvaluationNoise:
    """bpb = sum of bits / sum of bytes, and its standard error over stories (ratio estimator, linearised).

    bits: [stories], or [seeds, stories] for the mean over seeds on the same stories. Stories, not tokens,
    are the sampling unit: tokens of one story are not independent. Raises IsoflopError on unequal lengths,
    NaN, or a story without bytes. Source: W. G. Cochran, Sampling Techniques, 3rd ed., chapter 6, without
    the finite-population term.
    """
    x, y = _per_story(bits, "bits"), np.asarray(story_bytes, float)
    if x.shape != y.shape:
        raise IsoflopError(f"{x.size} stories have bits, {y.size} have bytes: evaluate again")
    if y.size == 0 or not np.all(np.isfinite(y)) or np.any(y <= 0):
        raise IsoflopError("story bytes must be one positive number per story, and at least one: evaluate again")
    total = float(y.sum())
    bpb = float(x.sum()) / total
    n = y.size
    if n < 2:
        return EvaluationNoise(bpb=bpb, se=None, stories=n)
    squares = float(np.sum((x - bpb * y) ** 2))
    return EvaluationNoise(bpb=bpb, se=math.sqrt(n / (n - 1) * squares) / total, stories=n)


def paired_evaluation_noise(control_bits: ArrayLike, arm_bits: ArrayLike, story_bytes: ArrayLike) -> EvaluationNoise:
    """Difference in bpb (arm minus control) over the same stories, and its standard error over stories.

    Both may be [stories] or [seeds, stories] (means over seeds are compared). What is hard for both cancels.
    Raises IsoflopError as `evaluation_noise` does, and when the stories are not the same.
    """
    c, a = _per_story(control_bits, "control bits"), _per_story(arm_bits, "arm bits")
    if c.shape != a.shape:
        raise IsoflopError(f"the control was evaluated on {c.size} stories, the arm on {a.size}: evaluate again")
    return evaluation_noise(a - c, story_bytes)


def noise_share(evaluation_se: float, seed_se: float) -> NoiseShare:
    """Would more test text or more seeds narrow the difference? Twice the variance decides; between, both.

    Raises IsoflopError unless both are finite and the seeds' is above zero.
    """
    if not (math.isfinite(evaluation_se) and math.isfinite(seed_se) and evaluation_se >= 0 and seed_se > 0):
        raise IsoflopError(f"standard errors {evaluation_se} and {seed_se} must be finite, the seeds' above zero")
    ratio = (evaluation_se / seed_se) ** 2
    helps: Literal["more test text", "more seeds", "more of both"] = "more of both"
    if ratio >= 2:
        helps = "more test text"
    elif ratio <= 0.5:
        helps = "more seeds"
    return NoiseShare(ratio=ratio, combined_se=math.hypot(evaluation_se, seed_se), helps=helps)


def _per_story(bits: ArrayLike, what: str) -> NDArray[np.float64]:
    x = np.asarray(bits, float)
    if x.ndim == 2 and len(x):
        x = x.mean(axis=0)
    if x.ndim != 1 or not np.all(np.isfinite(x)):
        raise IsoflopError(f"{what}: one finite number per story, found shape {x.shape}: evaluate again")
    return x
