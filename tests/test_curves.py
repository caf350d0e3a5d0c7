from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from isoflop.errors import IsoflopError
from isoflop.statistics.curves import common_grid, compute_at, compute_multiplier, curve, interpolate, seed_band

FLOPS = 1e15 * 2.0 ** np.arange(8)  # 1e15 to 1.28e17


def power_law(flops, scale=1.0, noise=0.0, rng=None):
    """A run whose bpb falls as a power of compute; it makes `scale` times as much of it."""
    flops = np.asarray(flops)
    bpb = 1.0 + 0.5 * (flops * scale / 1e15) ** -0.3
    return curve(flops, bpb + (0 if rng is None else rng.normal(0, noise, len(flops))))


def test_interpolation_is_linear_in_log_flops():
    c = curve([1e15, 1e17], [2.0, 1.0])
    assert interpolate(c, [1e15, 1e16, 1e17]) == pytest.approx([2.0, 1.5, 1.0])
    assert float(interpolate(c, math.sqrt(1e15 * 1e16))) == pytest.approx(1.75)


def test_nothing_is_extrapolated():
    c = curve([1e15, 1e17], [2.0, 1.0])
    for outside in (0.9e15, 1.1e17, 0.0 + 1e-300, math.nan):
        with pytest.raises(IsoflopError, match=r"measured from 1e\+15 to 1e\+17 FLOPs"):
            interpolate(c, outside)


def test_points_are_sorted_and_the_one_before_training_left_out():
    c = curve([1e16, 0.0, 1e15], [1.5, 8.0, 2.0])
    assert np.exp(c.log_flops) == pytest.approx([1e15, 1e16])
    assert c.bpb.tolist() == [2.0, 1.5]


@pytest.mark.parametrize(
    ("flops", "bpb", "message"),
    [
        ([1e15], [1.0, 2.0], "1 FLOPs and 2 bpb"),
        ([1e15, 1e16], [1.0, math.nan], "NaN or infinity"),
        ([math.inf, 1e16], [1.0, 1.0], "NaN or infinity"),
        ([1e15, 1e15], [1.0, 1.1], "each value once"),
        ([-1.0, 1e15], [1.0, 1.1], "must be positive"),
        ([0.0], [8.0], "no evaluation after the start"),
        ([], [], "no evaluation after the start"),
    ],
)
def test_broken_curves_are_refused(flops, bpb, message):
    with pytest.raises(IsoflopError, match=message):
        curve(flops, bpb)


def test_grid_covers_the_shared_range_only():
    curves = [curve([1e15, 1e17], [2, 1]), curve([3e15, 1e18], [2, 1]), curve([1e14, 5e16], [2, 1])]
    grid = common_grid(curves, 50)
    assert len(grid) == 50
    assert (grid[0], grid[-1]) == pytest.approx((3e15, 5e16))
    assert np.diff(np.log(grid)) == pytest.approx(np.full(49, math.log(5e16 / 3e15) / 49))
    for c in curves:
        assert np.all(np.isfinite(interpolate(c, grid)))


def test_grid_is_empty_where_nothing_is_shared():
    assert len(common_grid([curve([1e15, 1e16], [2, 1]), curve([1e17, 1e18], [2, 1])])) == 0
    assert len(common_grid([curve([1e15], [2])])) == 0
    assert len(common_grid([])) == 0


def test_band_is_a_t_interval_at_each_point():
    values = np.random.default_rng(0).normal(size=(4, 6))
    band = seed_band(values)
    expected = stats.t.interval(0.95, 3, values.mean(0), stats.sem(values))
    assert band.n == 4
    assert band.low == pytest.approx(expected[0])
    assert band.high == pytest.approx(expected[1])


def test_band_of_one_seed_has_no_width_and_nan_is_refused():
    band = seed_band([[1.0, 2.0]])
    assert (band.n, band.mean.tolist(), band.low, band.high) == (1, [1.0, 2.0], None, None)
    with pytest.raises(IsoflopError, match="finite values"):
        seed_band([[1.0, math.nan]])
    with pytest.raises(IsoflopError, match="shape"):
        seed_band(np.zeros((0, 4)))


def test_compute_at_inverts_interpolation():
    c = power_law(FLOPS)
    for flops in (1e15, 3.3e15, 4e15, 1.28e17):
        found, where = compute_at(c, float(interpolate(c, flops)) if flops < 1.28e17 else float(c.bpb[-1]))
        assert where == "measured"
        assert found == pytest.approx(flops)


def test_compute_at_says_where_it_is_not_measured():
    c = power_law(FLOPS)
    assert compute_at(c, float(c.bpb[0]) + 0.01) == (None, "before the measured range")
    assert compute_at(c, float(c.bpb[-1]) - 0.001) == (None, "beyond the measured range")


def test_one_lucky_evaluation_is_not_taken_for_the_crossing():
    smooth = power_law(FLOPS)
    bpb = smooth.bpb.copy()
    bpb[2] -= 0.1  # 1.23 at 4e15, a level that the curve reaches for good only at about 1.4e16
    found, where = compute_at(curve(FLOPS, bpb), 1.24)
    assert where == "measured"
    assert 8e15 < found == pytest.approx(compute_at(smooth, 1.24)[0], rel=0.2)


def test_an_arm_equal_to_the_control_has_multiplier_one_even_when_noisy():
    rng = np.random.default_rng(1)
    runs = {s: power_law(FLOPS, noise=0.05, rng=rng) for s in range(3)}
    result = compute_multiplier(runs, runs)
    assert result.by_seed == pytest.approx({0: 1, 1: 1, 2: 1})
    assert result.interval == pytest.approx((1, 1))


def test_multiplier_is_the_compute_factor():
    """An arm that makes s times as much of its compute is worth s times the compute to the control."""
    control = {s: power_law(FLOPS) for s in range(2)}
    arm = {s: power_law(FLOPS[:6], scale=2.0) for s in range(2)}  # ends at 3.2e16, as good as control at 6.4e16
    assert compute_multiplier(control, arm).estimate == pytest.approx(2.0)
    assert compute_multiplier(arm, control).beyond == 2  # the arm stopped before it got there


def test_multiplier_interval_is_t_on_the_log():
    control = {s: power_law(FLOPS) for s in range(3)}
    factors = np.array([0.25, 0.5, 0.5])  # powers of two: hit points of the control exactly
    arm = {s: power_law(FLOPS, scale=f) for s, f in enumerate(factors)}
    result = compute_multiplier(control, arm)
    logs = np.log(factors)
    assert result.n == 3
    assert result.estimate == pytest.approx(np.exp(logs.mean()))
    expected = stats.t.interval(0.95, 2, logs.mean(), stats.sem(logs))
    assert result.interval == pytest.approx(tuple(np.exp(expected)))


def test_one_seed_outside_withholds_the_mean_of_the_others():
    control = {s: power_law(FLOPS) for s in range(3)}
    arm = {0: power_law(FLOPS, 0.5), 1: power_law(FLOPS, 1.5), 2: power_law(FLOPS, 1e-4)}
    result = compute_multiplier(control, arm)
    assert (result.estimate, result.interval) == (None, None)
    assert (result.beyond, result.before, result.n) == (1, 1, 3)
    assert result.by_seed == {0: pytest.approx(0.5), 1: None, 2: None}


def test_multiplier_of_one_and_of_no_seed():
    one = compute_multiplier({0: power_law(FLOPS), 1: power_law(FLOPS)}, {0: power_law(FLOPS, 0.5)})
    assert (one.n, one.estimate, one.interval) == (1, pytest.approx(0.5), None)
    none = compute_multiplier({0: power_law(FLOPS)}, {1: power_law(FLOPS)})
    assert (none.n, none.estimate, none.beyond, none.before) == (0, None, 0, 0)


def test_multiplier_interval_survives_an_absurd_spread():
    flat = curve([1e-200, 1e200], [2.0, 1.0])
    arm = {0: curve([1.0], [1.01]), 1: curve([1.0], [1.99])}
    low, high = compute_multiplier({0: flat, 1: flat}, arm).interval
    assert 0 < low < 1 < high < math.inf
