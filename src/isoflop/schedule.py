"""How long to train, when to measure, and the learning rate on the way: pure functions of plain values."""

from __future__ import annotations

import math

from isoflop.config import Budget, TrainConfig
from isoflop.errors import IsoflopError


def steps_for(budget: Budget, *, flops_per_token: int, tokens_per_step: int) -> int:
    """Optimiser steps that come closest to the budget.

    Raises IsoflopError where the budget does not reach one step.
    """
    if budget.steps is not None:
        return int(budget.steps)
    if budget.tokens is not None:
        key, value, per_step = "tokens", budget.tokens, float(tokens_per_step)
    else:
        assert budget.flops is not None
        key, value, per_step = "flops", budget.flops, float(flops_per_token) * tokens_per_step
    if value < per_step:
        raise IsoflopError(
            f"train.budget.{key} = {value:g} is too small for one step, which takes {per_step:g} "
            f"({tokens_per_step} tokens); raise it or lower train.batch_size or model.block_size"
        )
    return round(value / per_step)


def learning_rate(step: int, *, steps: int, train: TrainConfig) -> float:
    """Rate of step `step` (0-based): linear warmup, then cosine from `lr` to `min_lr` at the last step."""
    return train.lr * warmup(step, train.warmup_steps) if step < train.warmup_steps else _cosine(step, steps, train)


def warmup(step: int, warmup_steps: int) -> float:
    """Fraction of the peak rate during linear warmup; the first step is not wasted at rate 0."""
    return (step + 1) / warmup_steps


def _cosine(step: int, steps: int, train: TrainConfig) -> float:
    done = (step - train.warmup_steps) / max(1, steps - train.warmup_steps)
    return train.min_lr + (train.lr - train.min_lr) * 0.5 * (1 + math.cos(math.pi * done))


def fractions_of(steps: int, points: int) -> list[int]:
    """Steps (1-based, counted when done) at `points` equal fractions of the run, the last one included.

    Equal fractions, so that arms of different length are measured at the same share of their budget.
    """
    return sorted({max(1, round(steps * i / points)) for i in range(1, points + 1)})
