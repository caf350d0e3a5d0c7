from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from isoflop.errors import IsoflopError
from isoflop.statistics.intervals import noise_floor, paired, t_interval

# Student's sleep data (1908): extra hours of sleep of ten patients under two drugs.
DRUG_1 = dict(enumerate([0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0]))
DRUG_2 = dict(enumerate([1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]))


def seeds(values):
    return dict(enumerate(float(v) for v in values))


def test_noise_floor_by_hand():
    floor = noise_floor(seeds([1, 2, 3, 4, 5]))
    assert (floor.n, floor.mean) == (5, 3)
    assert floor.sd == pytest.approx(math.sqrt(2.5))
    # chi-square with 4 degrees of freedom: 2.5 % and 97.5 % at 0.4844 and 11.1433
    assert floor.interval.low == pytest.approx(math.sqrt(2.5 * 4 / 11.1433), rel=1e-4)
    assert floor.interval.high == pytest.approx(math.sqrt(2.5 * 4 / 0.484419), rel=1e-4)


def test_noise_floor_of_one_and_of_none_is_not_available():
    one = noise_floor({7: 1.25})
    assert (one.n, one.mean, one.sd, one.interval) == (1, 1.25, None, None)
    none = noise_floor({})
    assert (none.n, none.mean, none.sd, none.interval) == (0, None, None, None)


def test_noise_floor_interval_covers_the_true_sd():
    values = np.random.default_rng(0).normal(1.0, 0.01, (2000, 3))
    found = [noise_floor(seeds(row)).interval for row in values]
    assert np.mean([i.low < 0.01 < i.high for i in found]) == pytest.approx(0.95, abs=0.015)


def test_paired_reproduces_the_sleep_data():
    result = paired(DRUG_1, DRUG_2).paired
    assert result.difference == pytest.approx(1.58)
    assert result.df == 9
    assert result.difference / result.se == pytest.approx(4.0621, abs=1e-4)
    assert result.p == pytest.approx(0.002833, abs=1e-6)
    assert result.interval == pytest.approx((0.7001, 2.4599), abs=1e-4)


def test_paired_and_welch_agree_with_scipy():
    rng = np.random.default_rng(1)
    c, a = rng.normal(size=6), rng.normal(0.3, 2.0, size=6)
    result = paired(seeds(c), seeds(a), confidence=0.9)
    reference = stats.ttest_rel(a, c)
    assert result.paired.p == pytest.approx(reference.pvalue, rel=1e-9)
    assert result.paired.interval == pytest.approx(tuple(reference.confidence_interval(0.9)), rel=1e-9)
    welch = stats.ttest_ind(a, c, equal_var=False)
    assert result.welch.p == pytest.approx(welch.pvalue, rel=1e-9)
    assert result.welch.df == pytest.approx(welch.df, rel=1e-9)
    assert result.welch.interval == pytest.approx(tuple(welch.confidence_interval(0.9)), rel=1e-9)
    assert result.correlation == pytest.approx(stats.pearsonr(c, a).statistic, rel=1e-9)


def test_difference_is_arm_minus_control_and_counted_in_noise_floors():
    result = paired(seeds([1.0, 1.2, 1.4]), seeds([1.1, 1.3, 1.8]))
    assert result.paired.difference == pytest.approx(0.2)
    assert result.noise_floors == pytest.approx(0.2 / 0.2)
    mirrored = paired(seeds([1.1, 1.3, 1.8]), seeds([1.0, 1.2, 1.4]))
    assert mirrored.paired.difference == pytest.approx(-0.2)
    assert mirrored.paired.interval == pytest.approx((-result.paired.interval.high, -result.paired.interval.low))


def test_only_shared_seeds_are_paired_and_all_enter_welch():
    control, arm = {0: 1.0, 1: 2.0, 2: 4.0, 9: 100.0}, {2: 4.5, 1: 2.3, 5: -50.0}
    result = paired(control, arm)
    assert result.seeds == (1, 2)
    assert result.paired.difference == pytest.approx(0.4)
    assert (result.welch.n_control, result.welch.n_arm) == (4, 3)
    reference = stats.ttest_ind(list(arm.values()), list(control.values()), equal_var=False)
    assert result.welch.p == pytest.approx(reference.pvalue)


def test_order_of_seeds_does_not_matter():
    backwards = dict(reversed(DRUG_2.items()))
    assert paired(DRUG_1, backwards).paired == paired(DRUG_1, DRUG_2).paired


def test_one_shared_seed_gives_a_difference_and_nothing_else():
    result = paired({0: 1.0, 1: 1.5}, {0: 0.75}).paired
    assert (result.difference, result.n_arm) == (-0.25, 1)
    assert (result.se, result.df, result.interval, result.p) == (None, None, None, None)


def test_no_shared_seed_gives_no_paired_difference():
    result = paired({0: 1.0, 1: 1.5}, {2: 0.5, 3: 0.7})
    assert result.paired.difference is None
    assert result.noise_floors is None
    assert result.welch.difference == pytest.approx(-0.65)


def test_all_seeds_of_an_arm_lost():
    result = paired({0: 1.0, 1: 1.5}, {})
    assert (result.paired.difference, result.welch.difference, result.welch.n_arm) == (None, None, 0)


def test_correlation_needs_three_seeds_and_spread():
    assert paired(seeds([1, 2]), seeds([3, 5])).correlation is None
    assert paired(seeds([1, 2, 3]), seeds([5, 5, 5])).correlation is None


def test_an_arm_that_changes_nothing_differs_by_exactly_nothing():
    result = paired(DRUG_1, DRUG_1).paired
    assert (result.difference, result.interval, result.p) == (0, (0, 0), 1)


def test_a_difference_without_spread_is_not_judged():
    result = paired(seeds([0.1, 0.2, 0.3]), seeds([0.2, 0.3, 0.4])).paired  # 0.1 each, up to rounding
    assert result.difference == pytest.approx(0.1)
    assert (result.se, result.interval, result.p) == (0, None, None)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_diverged_seed_is_refused_by_name(bad):
    with pytest.raises(IsoflopError, match=r"arm, seed 3: (nan|inf) .* leave a diverged run out"):
        paired({3: 1.0}, {3: bad})
    with pytest.raises(IsoflopError, match="control, seed 2"):
        noise_floor({2: bad})


@pytest.mark.parametrize("n", [2, 3, 5])
def test_paired_interval_covers_at_its_level_under_seed_effects(n):
    rng = np.random.default_rng(n)
    shared = rng.normal(1.0, 0.05, (2000, n))
    c = shared + rng.normal(0, 0.01, (2000, n))
    a = shared + rng.normal(0.02, 0.01, (2000, n))
    intervals = [paired(seeds(x), seeds(y)).paired.interval for x, y in zip(c, a, strict=True)]
    assert np.mean([i.low < 0.02 < i.high for i in intervals]) == pytest.approx(0.95, abs=0.015)


def test_welch_covers_with_unequal_spread_and_counts():
    rng = np.random.default_rng(4)
    c, a = rng.normal(0, 1, (2000, 5)), rng.normal(1, 3, (2000, 4))
    intervals = [paired(seeds(x), seeds(y)).welch.interval for x, y in zip(c, a, strict=True)]
    assert np.mean([i.low < 1 < i.high for i in intervals]) == pytest.approx(0.95, abs=0.02)


def test_t_interval_by_hand():
    assert t_interval(10.0, 2.0, 4) == pytest.approx((10 - 2.776445 * 2, 10 + 2.776445 * 2), abs=1e-5)
