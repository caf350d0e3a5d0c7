"""Batches: decided by the seed, complete, without state."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from isoflop.batches import Windows


def stream(n: int) -> np.ndarray:  # type: ignore[type-arg]
    return np.arange(n, dtype=np.uint32)


def test_targets_are_the_next_tokens_and_stay_in_the_stream() -> None:
    windows = Windows(stream(101), 10, seed=0)
    ids, targets = windows.batch(0, 60)
    assert ids.shape == targets.shape == (60, 10)
    assert torch.equal(ids + 1, targets)
    assert int(targets.max()) <= 100


def test_an_epoch_holds_each_window_once_and_the_next_another_order() -> None:
    windows = Windows(stream(101), 10, seed=0)
    epochs = [windows.batch(e * windows.per_epoch, windows.per_epoch)[0][:, 0].tolist() for e in range(3)]
    for starts in epochs:
        assert sorted(starts) == list(range(min(starts), min(starts) + 10 * windows.per_epoch, 10))
    assert epochs[0] != epochs[1] != epochs[2]


def test_the_order_depends_on_the_seed_alone_not_on_batch_size_or_history() -> None:
    whole = Windows(stream(500), 8, seed=3).batch(0, 40)[0]
    parts = Windows(stream(500), 8, seed=3)
    late_first = parts.batch(25, 15)[0]
    assert torch.equal(torch.cat([parts.batch(0, 25)[0], late_first]), whole)
    assert not torch.equal(Windows(stream(500), 8, seed=4).batch(0, 40)[0], whole)


@pytest.mark.parametrize("length", [9, 10, 17, 24, 25])
def test_the_shortest_streams_work(length: int) -> None:
    ids, targets = Windows(stream(length), 8, seed=0).batch(0, 5)
    assert torch.equal(ids + 1, targets)
    assert int(targets.max()) < length
