from __future__ import annotations

import math

import numpy as np
import pytest
import statsmodels.api as sm

from isoflop.errors import IsoflopError
from isoflop.statistics.ladder import isoflop_fit

SIZES = np.repeat(1e6 * 2.0 ** np.arange(5), 3)  # five sizes, three seeds each


def valley(sizes, best=4.5e6, depth=1.2, rng=None, noise=0.003):
    bpb = depth + 0.02 * np.log(np.asarray(sizes) / best) ** 2
    return bpb if rng is None else bpb + rng.normal(0, noise, len(bpb))


def test_an_exact_parabola_is_found_exactly():
    fit = isoflop_fit(SIZES, valley(SIZES))
    assert fit.minimum == pytest.approx(4.5e6)
    assert fit.minimum_bpb == pytest.approx(1.2)
    assert fit.coefficients[2] == pytest.approx(0.02)
    assert fit.interval == pytest.approx((4.5e6, 4.5e6), rel=1e-4)
    assert (fit.open_low, fit.open_high) == (False, False)
    assert fit.mean == pytest.approx(valley(fit.grid))


def test_three_sizes_leave_nothing_for_a_band():
    sizes = [1e6, 4e6, 1.6e7]
    fit = isoflop_fit(sizes, valley(sizes))
    assert fit.minimum == pytest.approx(4.5e6)
    assert (fit.residual_sd, fit.interval, fit.low, fit.high) == (None, None, None, None)


@pytest.mark.parametrize("runs", [4, 15])
def test_band_agrees_with_the_t_interval(runs):
    sizes = SIZES[:: 15 // runs][:runs] if runs == 15 else np.array([1e6, 2e6, 6e6, 1.6e7])
    bpb = valley(sizes, rng=np.random.default_rng(0))
    fit = isoflop_fit(sizes, bpb, draws=100_000, points=7)
    x = np.log(sizes) - np.log(sizes).mean()
    model = sm.OLS(bpb, np.vander(x, 3, increasing=True)).fit()
    at = np.vander(np.log(fit.grid) - np.log(sizes).mean(), 3, increasing=True)
    expected = model.get_prediction(at).conf_int(alpha=0.05)
    half = (expected[:, 1] - expected[:, 0]) / 2
    assert fit.residual_sd == pytest.approx(math.sqrt(model.scale))
    assert fit.mean == pytest.approx(at @ model.params)
    assert np.abs(fit.low - expected[:, 0]) == pytest.approx(0, abs=float(0.06 * half.max()))
    assert np.abs(fit.high - expected[:, 1]) == pytest.approx(0, abs=float(0.06 * half.max()))


def test_interval_covers_the_best_size():
    rng = np.random.default_rng(1)
    fits = [isoflop_fit(SIZES, valley(SIZES, rng=rng), draws=400, points=3) for _ in range(600)]
    assert np.mean([f.interval.low <= 4.5e6 <= f.interval.high for f in fits]) == pytest.approx(0.95, abs=0.027)


def test_interval_covers_with_four_runs():
    rng = np.random.default_rng(2)
    sizes = np.array([1e6, 2e6, 6e6, 1.6e7])
    fits = [isoflop_fit(sizes, valley(sizes, rng=rng), draws=400, points=3) for _ in range(600)]
    assert np.mean([f.interval.low <= 4.5e6 <= f.interval.high for f in fits]) > 0.92


@pytest.mark.parametrize("best", [2e5, 8e7])
def test_a_minimum_outside_the_measured_sizes_is_not_given(best):
    fit = isoflop_fit(SIZES, valley(SIZES, best=best, rng=np.random.default_rng(3), noise=0.0003))
    assert (fit.minimum, fit.minimum_bpb) == (None, None)
    assert (fit.open_low, fit.open_high) == (best < 1e6, best > 1e6)
    assert fit.interval.low >= 0.999e6
    assert fit.interval.high <= 1.601e7


def test_a_hill_has_no_minimum():
    fit = isoflop_fit(SIZES, 2.0 - valley(SIZES, rng=np.random.default_rng(4)))
    assert fit.minimum is None
    assert fit.open_low or fit.open_high


def test_same_draws_same_band_and_units_do_not_matter():
    bpb = valley(SIZES, rng=np.random.default_rng(5))
    one, same, scaled = isoflop_fit(SIZES, bpb), isoflop_fit(SIZES, bpb), isoflop_fit(SIZES * 1000, bpb)
    assert np.array_equal(one.low, same.low)
    assert scaled.minimum == pytest.approx(one.minimum * 1000)
    assert scaled.interval.low == pytest.approx(one.interval.low * 1000, rel=1e-6)


@pytest.mark.parametrize(
    ("sizes", "bpb", "message"),
    [
        ([1e6, 2e6], [1.0, 1.0], "three model sizes"),
        ([1e6, 1e6, 2e6], [1.0, 1.0, 1.0], "three model sizes"),
        ([0.0, 1e6, 2e6], [1.0, 1.0, 1.0], "above zero"),
        ([1e6, 2e6, 3e6], [1.0, math.nan, 1.0], "finite"),
        ([1e6, 2e6, 3e6], [1.0, 1.0], "one length"),
    ],
)
def test_impossible_ladders_are_refused(sizes, bpb, message):
    with pytest.raises(IsoflopError, match=message):
        isoflop_fit(sizes, bpb)
