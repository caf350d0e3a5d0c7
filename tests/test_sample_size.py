from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.power import TTestPower

from isoflop.errors import IsoflopError
from isoflop.statistics.sample_size import further_seeds, seeds_needed, smallest_detectable
from isoflop.statistics.verdicts import compare


def simulate(n, arms, shift, studies, seed, sd=1.0):
    """Balanced studies: contrasts [studies, arms], their standard error [studies, 1] and its df."""
    y = np.random.default_rng(seed).normal(0, sd, (studies, arms + 1, n))
    y[:, 1:] += shift
    residual = y - y.mean(1, keepdims=True) - y.mean(2, keepdims=True) + y.mean((1, 2), keepdims=True)
    df = arms * (n - 1)
    se = np.sqrt((residual**2).sum((1, 2)) / df * 2 / n)
    return y[:, 1:].mean(2) - y[:, :1].mean(2), se[:, None], df


def difference_rate(n, arms, shift, studies=20_000):
    d, se, df = simulate(n, arms, shift, studies, seed=n)
    return np.mean(np.abs(d) > stats.t.ppf(1 - 0.025 / arms, df) * se)


def equivalence_rate(n, arms, margin, studies=20_000):
    d, se, df = simulate(n, arms, 0.0, studies, seed=n)
    return np.mean(np.abs(d) < margin - stats.t.ppf(1 - 0.05 / arms, df) * se)


@pytest.mark.parametrize("margin", [1.0, 2.0, 4.0])
def test_difference_agrees_with_statsmodels(margin):
    expected = TTestPower().solve_power(effect_size=margin / math.sqrt(2), alpha=0.05, power=0.8)
    assert seeds_needed(1.0, margin, 1).difference == math.ceil(expected)


@pytest.mark.parametrize(("margin", "arms"), [(2.0, 1), (1.5, 3)])
def test_the_promised_power_is_reached_and_one_seed_less_misses_it(margin, arms):
    needed = seeds_needed(1.0, margin, arms)
    assert difference_rate(needed.difference, arms, margin) > 0.79
    assert difference_rate(needed.difference - 1, arms, margin) < 0.81
    assert equivalence_rate(needed.equivalence, arms, margin) > 0.79
    assert equivalence_rate(needed.equivalence - 1, arms, margin) < 0.81


def test_more_arms_noise_or_power_take_more_seeds_and_correlation_fewer():
    base = seeds_needed(0.01, 0.01, 2).difference
    assert seeds_needed(0.01, 0.01, 8).difference > base
    assert seeds_needed(0.02, 0.01, 2).difference > base
    assert seeds_needed(0.01, 0.01, 2, power=0.9).difference > base
    assert seeds_needed(0.01, 0.01, 2, correlation=0.75).difference < base


def test_only_the_ratio_of_noise_and_margin_counts():
    assert seeds_needed(0.004, 0.006, 3) == seeds_needed(4.0, 6.0, 3)


def test_beyond_the_cap_there_is_no_number():
    needed = seeds_needed(1.0, 0.1, 1)
    assert (needed.difference, needed.equivalence) == (None, None)
    assert seeds_needed(1.0, 0.3, 1, cap=200).difference == pytest.approx(
        TTestPower().solve_power(effect_size=0.3 / math.sqrt(2), alpha=0.05, power=0.8), abs=1
    )


def test_two_seeds_are_the_least():
    assert seeds_needed(1e-6, 1.0, 1).difference == 2


def test_smallest_detectable_agrees_with_statsmodels_and_undoes_seeds_needed():
    effect = TTestPower().solve_power(nobs=5, alpha=0.05, power=0.8)
    assert smallest_detectable(0.01, 5, 1) == pytest.approx(effect * math.sqrt(2) * 0.01, rel=1e-3)
    size = smallest_detectable(0.01, 6, 3)
    assert seeds_needed(0.01, size * 1.0001, 3).difference == 6
    assert seeds_needed(0.01, size * 0.9999, 3).difference == 7
    assert smallest_detectable(0.01, 2, 1) > 10 * 0.01  # one degree of freedom
    assert smallest_detectable(0.01, 1, 1) is None


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: seeds_needed(0.0, 0.1, 1), "noise floor 0.0 must be a positive number"),
        (lambda: seeds_needed(math.nan, 0.1, 1), "noise floor nan"),
        (lambda: seeds_needed(0.1, 0.0, 1), r"study\.margin = 0\.0 must be a positive number"),
        (lambda: seeds_needed(0.1, math.nan, 1), r"study\.margin = nan"),
        (lambda: seeds_needed(0.1, 0.1, 1, correlation=1.0), "correlation 1.0"),
        (lambda: smallest_detectable(-1.0, 3, 1), "noise floor -1.0"),
    ],
)
def test_impossible_plans_are_refused(call, message):
    with pytest.raises(IsoflopError, match=message):
        call()


def more(difference, se=0.006, margin=0.01, df=2, **changes):
    values = {"residual_sd": se * math.sqrt(3 / 2), "arms": 1} | changes  # three seeds
    return further_seeds(difference=difference, se=se, df=df, margin=margin, **values)


def test_further_seeds_grow_with_noise_and_fall_with_the_difference():
    assert more(0.05, se=0.02) < more(0.03, se=0.02)
    assert more(0.0, se=0.003) < more(0.0, se=0.006)
    assert more(-0.03, se=0.02) == more(0.03, se=0.02)
    assert more(0.0, margin=0.0005) is None


def test_further_seeds_of_a_settled_question_is_one():
    assert more(0.0, se=1e-5, margin=0.1, df=30) == 1


def predicted_chance(extra, difference, sd, n, arms, margin, draws=200_000):
    """Draw the noise, the true difference, and the new seeds one after the other; apply the rule at the end."""
    rng, df = np.random.default_rng(0), arms * (n - 1)
    sigma = sd * np.sqrt(df / rng.chisquare(df, draws))
    truth = rng.normal(difference, sigma * math.sqrt(2 / n))
    new = rng.normal(truth, sigma * math.sqrt(2 / extra))
    final = (n * difference + extra * new) / (n + extra)
    se, final_df = sigma * math.sqrt(2 / (n + extra)), arms * (n + extra - 1)
    found = np.abs(final) > stats.t.ppf(1 - 0.025 / arms, final_df) * se
    equal = np.abs(final) < margin - stats.t.ppf(1 - 0.05 / arms, final_df) * se
    return np.mean(found | equal)


@pytest.mark.parametrize("arms", [1, 3])
@pytest.mark.parametrize("difference", [0.0, 0.004, 0.012])
def test_further_seeds_are_the_first_to_reach_the_chance(difference, arms):
    n, sd, margin = 4, 0.008, 0.01
    found = further_seeds(
        difference=difference,
        se=sd * math.sqrt(2 / n),
        residual_sd=sd,
        df=arms * (n - 1),
        margin=margin,
        arms=arms,
    )
    assert found > 1
    assert predicted_chance(found, difference, sd, n, arms, margin) > 0.795
    assert predicted_chance(found - 1, difference, sd, n, arms, margin) < 0.805


def test_further_seeds_keep_their_promise():
    """Studies from a wide range of truths and noises; those left open get the seeds they ask for."""
    rng = np.random.default_rng(0)
    margin, settled = 0.01, []

    def word_and_more(y, truth):
        control, arm = (dict(enumerate(map(float, row))) for row in (y[0], y[1] + truth))
        verdict = compare(control, {"x": arm}, margin=margin)["x"].verdict
        return verdict.word, verdict.further_seeds

    while len(settled) < 500:
        n, sd = int(rng.integers(2, 6)), 10 ** rng.uniform(-3.5, -1.0)
        truth, y = rng.uniform(-0.2, 0.2), rng.normal(0, sd, (2, n))
        word, further = word_and_more(y, truth)
        if word == "inconclusive" and further is not None:
            y = np.hstack([y, rng.normal(0, sd, (2, further))])
            settled.append(word_and_more(y, truth)[0] != "inconclusive")
    assert 0.8 < np.mean(settled) < 0.93
