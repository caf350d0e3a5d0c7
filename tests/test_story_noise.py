from __future__ import annotations

import math

import numpy as np
import pytest

from isoflop.errors import IsoflopError
from isoflop.statistics.story_noise import evaluation_noise, noise_share, paired_evaluation_noise


def stories(rng, n, level=1.2):
    """Stories of very different length whose rate in bits per byte varies and depends on length."""
    y = np.ceil(rng.lognormal(6, 0.7, n))
    rate = level + 0.1 * rng.standard_normal(n) + 0.05 * (6 - np.log(y))
    return rate * y, y


def test_by_hand():
    # ratio 60 / 40; residuals -5, 5, 0; variance 3/2 · 50 / 40²
    noise = evaluation_noise([10, 20, 30], [10, 10, 20])
    assert noise.bpb == 1.5
    assert noise.se == pytest.approx(math.sqrt(1.5 * 50 / 1600))
    assert noise.stories == 3


def test_equal_rate_in_every_story_has_no_noise():
    y = np.array([100, 250, 400])
    assert evaluation_noise(1.25 * y, y).se == pytest.approx(0, abs=1e-12)


def test_stories_of_equal_length_reduce_to_the_standard_error_of_a_mean():
    x = np.random.default_rng(0).normal(120, 10, 50)
    noise = evaluation_noise(x, np.full(50, 100.0))
    assert noise.se == pytest.approx(np.std(x / 100, ddof=1) / math.sqrt(50))


def test_agrees_with_a_bootstrap_over_many_stories():
    rng = np.random.default_rng(1)
    x, y = stories(rng, 2000)
    draws = rng.multinomial(2000, np.full(2000, 1 / 2000), size=2000)
    bootstrap = np.std((draws @ x) / (draws @ y))
    assert evaluation_noise(x, y).se == pytest.approx(bootstrap, rel=0.06)  # three sd of a sd from 2,000 draws


def test_paired_agrees_with_a_bootstrap_and_cancels_what_is_hard_for_both():
    rng = np.random.default_rng(2)
    x, y = stories(rng, 2000)
    arm = x - 0.02 * y + 0.01 * y * rng.standard_normal(2000)
    noise = paired_evaluation_noise(x, arm, y)
    draws = rng.multinomial(2000, np.full(2000, 1 / 2000), size=2000)
    bootstrap = np.std((draws @ (arm - x)) / (draws @ y))
    assert noise.se == pytest.approx(bootstrap, rel=0.06)
    assert noise.bpb == pytest.approx(evaluation_noise(arm, y).bpb - evaluation_noise(x, y).bpb)
    assert noise.se < evaluation_noise(x, y).se / 5


def test_interval_over_stories_covers_the_ratio_of_the_population():
    rng = np.random.default_rng(3)
    x, y = stories(rng, 200_000)
    truth = x.sum() / y.sum()
    picks = rng.integers(0, len(x), (1000, 400))
    found = [evaluation_noise(x[i], y[i]) for i in picks]
    assert np.mean([abs(f.bpb - truth) < 1.96 * f.se for f in found]) == pytest.approx(0.95, abs=0.025)


def test_seeds_are_averaged_story_by_story():
    rng = np.random.default_rng(4)
    x, y = stories(rng, 300)
    both = np.stack([x, x + rng.normal(0, 5, 300)])
    assert evaluation_noise(both, y) == evaluation_noise(both.mean(axis=0), y)
    assert paired_evaluation_noise(both, both[:, ::1] + y, y).bpb == pytest.approx(1)


def test_more_seeds_do_not_shrink_the_noise_that_all_share():
    rng = np.random.default_rng(5)
    x, y = stories(rng, 1000)
    one = evaluation_noise(x, y).se
    assert evaluation_noise(np.tile(x, (5, 1)), y).se == pytest.approx(one)


def test_one_story_has_no_standard_error():
    noise = evaluation_noise([120.0], [100])
    assert (noise.bpb, noise.se, noise.stories) == (1.2, None, 1)


@pytest.mark.parametrize(
    ("bits", "sizes", "message"),
    [
        ([1.0, 2.0], [1, 2, 3], "2 stories have bits, 3 have bytes"),
        ([1.0, math.nan], [1, 2], "bits: one finite number per story"),
        ([1.0, 2.0], [1, 0], "one positive number per story"),
        ([], [], "at least one"),
        ([[[1.0]]], [1], "found shape"),
    ],
)
def test_impossible_stories_are_refused(bits, sizes, message):
    with pytest.raises(IsoflopError, match=message):
        evaluation_noise(bits, sizes)


def test_different_stories_are_refused():
    with pytest.raises(IsoflopError, match="control was evaluated on 2 stories, the arm on 3"):
        paired_evaluation_noise([1.0, 2.0], [1.0, 2.0, 3.0], [1, 1, 1])


@pytest.mark.parametrize(
    ("evaluation", "seeds", "helps"),
    [(2.0, 1.0, "more test text"), (1.0, 1.0, "more of both"), (1.0, 2.0, "more seeds"), (0.0, 1.0, "more seeds")],
)
def test_share(evaluation, seeds, helps):
    share = noise_share(evaluation, seeds)
    assert share.helps == helps
    assert share.ratio == (evaluation / seeds) ** 2
    assert share.combined_se == pytest.approx(math.sqrt(evaluation**2 + seeds**2))


@pytest.mark.parametrize("seed_se", [0.0, math.nan])
def test_share_needs_noise_of_seeds(seed_se):
    with pytest.raises(IsoflopError, match="above zero"):
        noise_share(0.1, seed_se)
