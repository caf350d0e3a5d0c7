from __future__ import annotations

import math

import pytest

from isoflop.errors import IsoflopError
from isoflop.statistics.predictions import score_prediction
from isoflop.statistics.verdicts import compare

MARGIN = 0.01


def measured(mean, spread=0.0017):
    """Three seeds with se 0.001: |mean| above 0.0043 is detected, below 0.0071 equivalent."""
    control = {0: 1.0, 1: 1.0, 2: 1.0}
    arm = {0: 1 + mean - spread, 1: 1 + mean, 2: 1 + mean + spread}
    return compare(control, {"x": arm}, margin=MARGIN)["x"]


@pytest.mark.parametrize(
    ("direction", "size", "mean", "outcome"),
    [
        ("better", 0.02, -0.03, "hit"),
        ("better", None, -0.03, "hit"),
        ("better", 0.02, +0.03, "miss"),
        ("better", 0.02, 0.001, "miss"),
        ("better", 0.02, -0.006, "miss"),  # real, but too small to matter, and more was predicted
        ("better", 0.005, -0.006, "hit"),  # predicted to be that small
        ("better", 0.005, +0.006, "miss"),
        ("better", None, -0.006, "miss"),
        ("worse", 0.02, +0.03, "hit"),
        ("worse", 0.02, -0.03, "miss"),
        ("worse", 0.005, +0.006, "hit"),
        ("same", None, 0.001, "hit"),
        ("same", 0, 0.006, "hit"),
        ("same", None, 0.03, "miss"),
    ],
)
def test_outcome(direction, size, mean, outcome):
    assert score_prediction(direction, size, measured(mean)).outcome == outcome


def test_an_open_verdict_decides_no_prediction():
    wide = measured(-0.03, spread=0.1)
    assert wide.verdict.word == "inconclusive"
    assert {score_prediction(d, None, wide).outcome for d in ("better", "worse", "same")} == {"undecided"}


def test_how_far_off():
    score = score_prediction("better", 0.02, measured(-0.03))
    assert score.predicted == -0.02
    assert score.off == pytest.approx(-0.01)  # ten thousandths better than predicted
    assert score.inside is False
    near = score_prediction("better", 0.029, measured(-0.03))
    assert near.inside is True
    same = score_prediction("same", None, measured(0.001))
    assert (same.predicted, same.inside) == (0, True)
    assert same.off == pytest.approx(0.001)


def test_without_a_size_or_a_measurement_there_is_no_distance():
    unsized = score_prediction("worse", None, measured(0.03))
    assert (unsized.predicted, unsized.off, unsized.inside) == (None, None, None)
    lost = compare({0: 1.0}, {"x": {}}, margin=MARGIN)["x"]
    assert score_prediction("worse", 0.1, lost).off is None
    single = compare({0: 1.0}, {"x": {0: 1.2}}, margin=MARGIN)["x"]
    score = score_prediction("worse", 0.1, single)
    assert (score.outcome, score.inside) == ("undecided", None)
    assert score.off == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("direction", "size", "message"),
    [
        ("bigger", 0.1, "direction = bigger must be better, worse or same"),
        ("better", -0.1, "size = -0.1 .* direction carries the sign"),
        ("worse", math.nan, "size = nan"),
        ("same", 0.1, "size = 0.1 with direction = same"),
    ],
)
def test_impossible_predictions_are_refused(direction, size, message):
    with pytest.raises(IsoflopError, match=message):
        score_prediction(direction, size, measured(0.0))
