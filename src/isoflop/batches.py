"""Which tokens a step trains on: decided by the seed alone, for any step, without stored state."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


class Windows:
    """Windows of `block_size` tokens, each epoch in a new order and from a new starting offset.

    Window i of a run is the same in every arm with this seed, stream and block size, whatever its batch size, and
    can be asked for at any time: a resumed run, or one rank of several, needs no generator state.
    """

    def __init__(self, stream: NDArray[np.unsignedinteger], block_size: int, seed: int) -> None:
        predicted = len(stream) - 1
        assert predicted >= block_size, "plans refuse splits shorter than a window"
        self.stream = stream
        self.block_size = block_size
        self.seed = seed
        # One window less than fits leaves room to shift all of them by up to a block.
        self.per_epoch = max(1, predicted // block_size - 1)
        self.max_offset = min(block_size - 1, predicted - self.per_epoch * block_size)
        self._epoch = -1
        self._starts: NDArray[np.int64] = np.empty(0, np.int64)

    def starts(self, epoch: int) -> NDArray[np.int64]:
        """First token of each window of an epoch, in the order of training."""
        if epoch != self._epoch:
            generator = np.random.default_rng([self.seed, epoch])
            offset = int(generator.integers(self.max_offset + 1))
            self._starts = generator.permutation(self.per_epoch) * self.block_size + offset
            self._epoch = epoch
        return self._starts

    def batch(self, first: int, count: int) -> tuple[Tensor, Tensor]:
        """Windows first, ..., first + count - 1 of the run: inputs and targets, (count, block_size) int64."""
        rows = np.empty((count, self.block_size + 1), np.int64)
        for row in range(count):
            epoch, i = divmod(first + row, self.per_epoch)
            start = self.starts(epoch)[i]
            rows[row] = self.stream[start : start + self.block_size + 1]
        ids = torch.from_numpy(rows)
        return ids[:, :-1], ids[:, 1:]
