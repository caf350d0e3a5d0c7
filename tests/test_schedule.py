"""Steps from budgets, measuring points, learning rates."""

from __future__ import annotations

import math

import pytest

from conftest import train_config
from isoflop.config import Budget
from isoflop.errors import IsoflopError
from isoflop.schedule import fractions_of, learning_rate, steps_for


@pytest.mark.parametrize(
    ("budget", "steps"),
    [
        (Budget(steps=7.0), 7),
        (Budget(tokens=1000.0), 10),
        (Budget(tokens=1049.0), 10),
        (Budget(flops=5e5), 10),
        (Budget(flops=5.4e5), 11),
    ],
)
def test_steps_come_closest_to_the_budget(budget: Budget, steps: int) -> None:
    assert steps_for(budget, flops_per_token=500, tokens_per_step=100) == steps


def test_a_budget_below_one_step_is_refused() -> None:
    with pytest.raises(
        IsoflopError, match=r"train\.budget\.flops = 49999 is too small for one step, which takes 50000"
    ):
        steps_for(Budget(flops=49_999.0), flops_per_token=500, tokens_per_step=100)
    with pytest.raises(IsoflopError, match=r"train\.budget\.tokens = 99 is too small"):
        steps_for(Budget(tokens=99.0), flops_per_token=500, tokens_per_step=100)


def test_arms_of_different_cost_spend_the_same_within_one_percent() -> None:
    spent = [
        steps_for(Budget(flops=4e12), flops_per_token=cost, tokens_per_step=2048) * cost * 2048
        for cost in (5_708_544, 5_118_720, 9_000_001)
    ]
    assert all(abs(s / 4e12 - 1) < 0.01 for s in spent)


@pytest.mark.parametrize(("steps", "points"), [(1000, 8), (7, 3), (3, 8), (1, 100)])
def test_measuring_points_are_fractions_of_the_run_and_end_with_it(steps: int, points: int) -> None:
    found = fractions_of(steps, points)
    assert found[-1] == steps
    assert found == sorted(set(found))
    assert len(found) == min(steps, points)
    assert all(1 <= step <= steps for step in found)


def test_warmup_then_cosine_to_the_minimum() -> None:
    train = train_config(
        ("lr: 0.006", "lr: 0.4"), ("min_lr: 0.0", "min_lr: 0.1"), ("warmup_steps: 50", "warmup_steps: 4")
    )
    rates = [learning_rate(step, steps=12, train=train) for step in range(13)]
    assert rates[:4] == pytest.approx([0.1, 0.2, 0.3, 0.4])
    assert rates[4] == pytest.approx(0.4)
    assert rates[8] == pytest.approx(0.25)  # half way: the mean of peak and minimum
    assert rates[10] == pytest.approx(0.1 + 0.15 * (1 + math.cos(math.pi * 0.75)))
    assert rates[12] == pytest.approx(0.1)


def test_without_warmup_the_first_step_is_at_the_peak() -> None:
    train = train_config(("warmup_steps: 50", "warmup_steps: 0"))
    assert learning_rate(0, steps=5, train=train) == train.lr
