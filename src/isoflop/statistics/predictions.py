"""Predictions written down before the runs, held against the verdicts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from isoflop.errors import IsoflopError
from isoflop.statistics.verdicts import Comparison


@dataclass(frozen=True, kw_only=True)
class Score:
    """A prediction held against what was measured. `off` is measured minus predicted (signed, bpb).

    `inside`: the predicted difference lies in the interval of the measured one.
    """

    outcome: Literal["hit", "miss", "undecided"]
    predicted: float | None
    off: float | None
    inside: bool | None


def score_prediction(direction: str, size: float | None, result: Comparison) -> Score:
    """Hit, miss or undecided, and how far off.

    direction: better, worse or same. size: bpb, not negative (the direction carries the sign); None if none
    was given. "same" predicts 0 and is hit by "equivalent". "better" is hit by "better", missed by "worse"
    and by "equivalent"; only where the predicted size is itself below the margin, a detected difference in
    the right direction is a hit although it is smaller than the margin ("worse" likewise). Inconclusive and
    no verdict leave every prediction undecided. Raises IsoflopError on another direction or an impossible
    size.
    """
    predicted = _signed(direction, size)
    word, detected = result.verdict.word, result.verdict.detected
    outcome: Literal["hit", "miss", "undecided"]
    if word in ("inconclusive", "no verdict"):
        outcome = "undecided"
    elif direction == "same":
        outcome = "hit" if word == "equivalent" else "miss"
    else:
        small = size is not None and size < result.margin
        outcome = "hit" if word == direction or (small and detected == direction) else "miss"
    measured, interval = result.contrast.difference, result.contrast.interval
    return Score(
        outcome=outcome,
        predicted=predicted,
        off=None if predicted is None or measured is None else measured - predicted,
        inside=None if predicted is None or interval is None else interval.low <= predicted <= interval.high,
    )


def _signed(direction: str, size: float | None) -> float | None:
    if direction not in ("better", "worse", "same"):
        raise IsoflopError(f"prediction: direction = {direction} must be better, worse or same")
    if size is not None and not (math.isfinite(size) and size >= 0):
        raise IsoflopError(
            f"prediction: size = {size} must be bits per byte and not negative: direction carries the sign"
        )
    if direction == "same":
        if size:
            raise IsoflopError(f"prediction: size = {size} with direction = same: leave it out or say 0")
        return 0.0
    return None if size is None else (-size if direction == "better" else size)
