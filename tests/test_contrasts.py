from __future__ import annotations

import math

import numpy as np
import pytest
import statsmodels.api as sm
from statsmodels.stats.multitest import multipletests

from isoflop.errors import IsoflopError
from isoflop.statistics.contrasts import holm, pooled
from isoflop.statistics.intervals import paired


def study(rng, arms, n, sd=0.01, seed_sd=0.03, shifts=None):
    """Control and arms with a common seed effect: [1 + arms, n] values as mappings."""
    y = 1.0 + rng.normal(0, seed_sd, (1, n)) + rng.normal(0, sd, (arms + 1, n))
    y[1:] += np.zeros((arms, 1)) if shifts is None else np.asarray(shifts)[:, None]
    rows = [dict(enumerate(map(float, row))) for row in y]
    return rows[0], {f"arm{i}": row for i, row in enumerate(rows[1:])}


def reference(control, arms):
    """The same model with statsmodels and a full-rank design."""
    groups = [control, *arms.values()]
    seeds = sorted(set().union(*groups))
    X, y = [], []
    for i, group in enumerate(groups):
        for s, v in group.items():
            arm_columns = [float(i == j) for j in range(1, len(groups))]
            X.append([1.0, *arm_columns, *(float(s == t) for t in seeds[1:])])
            y.append(v)
    return sm.OLS(np.array(y), np.array(X)).fit()


def test_by_hand_on_a_balanced_table():
    # rows: control 1 2 3, a 2 3 4, b 4 4 7. Row means 2 3 5, seed means 7/3 3 14/3, grand mean 10/3.
    fit = pooled({0: 1, 1: 2, 2: 3}, {"a": {0: 2, 1: 3, 2: 4}, "b": {0: 4, 1: 4, 2: 7}})
    # residuals x3: control 0 1 -1, a 0 1 -1, b 0 -2 2
    rss = (2 + 2 + 8) / 9
    assert fit.df == 4
    assert fit.residual_sd == pytest.approx(math.sqrt(rss / 4))
    a, b = fit.contrasts["a"], fit.contrasts["b"]
    assert (a.difference, b.difference) == pytest.approx((1, 3))
    assert a.se == b.se == pytest.approx(math.sqrt(rss / 4 * 2 / 3))
    assert a.interval.high - a.difference == pytest.approx(2.776445 * a.se, rel=1e-6)


@pytest.mark.parametrize("lost", [(), (0,), (3,), (0, 3)])
def test_one_arm_is_the_paired_t_test(lost):
    control, arms = study(np.random.default_rng(0), 1, 5)
    arm = {s: v for s, v in arms["arm0"].items() if s not in lost}
    control.pop(2)
    one, pair = pooled(control, {"x": arm}).contrasts["x"], paired(control, arm).paired
    assert one.n == pair.n_arm
    assert one.df == pair.df
    assert one.difference == pytest.approx(pair.difference, rel=1e-11)
    assert one.se == pytest.approx(pair.se, rel=1e-11)
    assert one.p == pytest.approx(pair.p, rel=1e-10)
    assert one.interval == pytest.approx(pair.interval, rel=1e-10)
    assert one.spread == pytest.approx(1)


@pytest.mark.parametrize("balanced", [True, False])
def test_agrees_with_statsmodels(balanced):
    control, arms = study(np.random.default_rng(1), 3, 5, shifts=[0.01, -0.02, 0.0])
    if not balanced:
        control.pop(4)
        arms["arm0"].pop(0)
        arms["arm1"].pop(1)
        arms["arm1"].pop(2)
        arms["arm2"][17] = 1.02
    fit, expected = pooled(control, arms, confidence=0.9), reference(control, arms)
    assert fit.df == expected.df_resid
    assert fit.residual_sd == pytest.approx(math.sqrt(expected.scale), rel=1e-9)
    for i, contrast in enumerate(fit.contrasts.values(), start=1):
        assert contrast.difference == pytest.approx(expected.params[i], rel=1e-9)
        assert contrast.se == pytest.approx(expected.bse[i], rel=1e-9)
        assert contrast.p == pytest.approx(expected.pvalues[i], rel=1e-8)
        assert contrast.interval == pytest.approx(tuple(expected.conf_int(0.1)[i]), rel=1e-8)


def test_a_shift_of_a_whole_seed_changes_nothing():
    control, arms = study(np.random.default_rng(2), 2, 4)
    moved = [{s: v + 10.0 * (s == 1) for s, v in group.items()} for group in (control, *arms.values())]
    before = pooled(control, arms).contrasts
    after = pooled(moved[0], dict(zip(arms, moved[1:], strict=True))).contrasts
    for name in arms:
        assert after[name].difference == pytest.approx(before[name].difference, rel=1e-9)
        assert after[name].se == pytest.approx(before[name].se, rel=1e-9)


def test_too_few_shared_seeds_have_no_interval_and_disturb_no_one():
    control, arms = study(np.random.default_rng(3), 2, 4)
    before = pooled(control, arms)
    fit = pooled(control, {**arms, "one": {1: 1.0}, "none": {8: 1.0, 9: 1.1}, "dead": {}})
    one, none, dead = (fit.contrasts[name] for name in ("one", "none", "dead"))
    assert one.n == 1
    assert one.difference is not None
    assert (one.se, one.interval, one.p) == (None, None, None)
    assert (none.n, none.difference, none.p) == (0, None, None)
    assert (dead.n, dead.difference, dead.p) == (0, None, None)
    assert fit.df == before.df
    for name in arms:
        assert fit.contrasts[name].p == pytest.approx(before.contrasts[name].p, rel=1e-9)


def test_one_seed_each_gives_differences_only():
    fit = pooled({0: 1.0}, {"a": {0: 1.5}, "b": {0: 0.5}})
    assert (fit.df, fit.residual_sd) == (0, None)
    assert fit.contrasts["a"].difference == pytest.approx(0.5)
    assert fit.contrasts["a"].interval is None


def test_control_lost_entirely_or_alone():
    assert pooled({}, {"a": {0: 1.0, 1: 2.0}}).contrasts["a"].difference is None
    assert pooled({0: 1.0, 1: 2.0}, {}).contrasts == {}


def test_without_any_spread_only_no_difference_can_be_judged():
    control = {0: 0.1, 1: 0.2, 2: 0.3}
    fit = pooled(control, {"same": dict(control), "moved": {s: v + 0.1 for s, v in control.items()}})
    assert fit.residual_sd == 0
    assert fit.contrasts["same"].p == 1
    assert (fit.contrasts["moved"].p, fit.contrasts["moved"].interval) == (None, None)


def test_a_noisier_arm_shows_in_spread():
    rng = np.random.default_rng(5)
    control, arms = study(rng, 3, 8)
    arms["arm2"] = {s: v + rng.normal(0, 0.2) for s, v in arms["arm2"].items()}
    contrasts = pooled(control, arms).contrasts
    assert contrasts["arm2"].spread > 1.3 > 0.5 > contrasts["arm0"].spread


def test_a_diverged_seed_is_refused_by_name():
    with pytest.raises(IsoflopError, match="arm mqa, seed 1: nan"):
        pooled({0: 1.0, 1: 1.0}, {"mqa": {0: 1.0, 1: math.nan}})


def test_coverage_with_lost_seeds():
    rng = np.random.default_rng(6)
    covered = []
    for _ in range(1000):
        control, arms = study(rng, 3, 4, shifts=[0.01, -0.005, 0.0])
        control.pop(int(rng.integers(4)))
        arms["arm1"].pop(0)
        contrasts = pooled(control, arms).contrasts
        for name, truth in (("arm0", 0.01), ("arm1", -0.005), ("arm2", 0.0)):
            covered.append(contrasts[name].interval.low < truth < contrasts[name].interval.high)
    assert np.mean(covered) == pytest.approx(0.95, abs=0.015)


def test_holm_by_hand_and_against_statsmodels():
    p = {"a": 0.01, "b": 0.04, "c": 0.03, "d": 0.005, "untested": None}
    assert holm(p) == pytest.approx({"a": 0.03, "b": 0.06, "c": 0.06, "d": 0.02, "untested": None})
    values = np.random.default_rng(7).uniform(0, 0.2, 9)
    ours = holm({str(i): float(v) for i, v in enumerate(values)})
    assert list(ours.values()) == pytest.approx(multipletests(values, method="holm")[1])


def test_holm_of_nothing():
    assert holm({}) == {}
    assert holm({"a": None}) == {"a": None}
