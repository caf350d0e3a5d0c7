"""Exact bits per byte.

bpb = sum of nats over every predicted token / (ln 2 x bytes of the stories). Each token is scored exactly once, the
end-of-story token included (it costs nats and adds no bytes); every story begins with the end-of-story token
before it as context. Sums are float64.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from isoflop.model.gpt import GPT

POSITIONS = (0, 32, 64, 128, 256, 512, 1024)  # bytes since the story began; the last range is open


@dataclass(frozen=True, kw_only=True)
class Score:
    """Bits per byte of a split, with what it is made of."""

    nats: float
    tokens: int
    bytes: int
    story_bits: NDArray[np.float64]
    story_bytes: NDArray[np.int64]
    by_position: list[dict[str, float | None]]

    @property
    def bits(self) -> float:
        return self.nats / math.log(2)

    @property
    def bpb(self) -> float:
        return self.bits / self.bytes


def windows(predicted: int, block_size: int, stride: int) -> Iterator[tuple[int, int, int]]:
    """(start, length, first new) of each window over `predicted` tokens: from `first new` on its tokens count.

    The first window counts whole; the others advance by `stride` and count their last `stride` tokens; the last
    one is moved back to end with the split, so that it keeps its context.
    """
    length = min(block_size, predicted)
    yield 0, length, 0
    covered = length
    while covered < predicted:
        end = min(covered + stride, predicted)
        yield end - length, length, length - (end - covered)
        covered = end


@torch.inference_mode()
def token_nats(
    model: GPT,
    stream: NDArray[np.unsignedinteger],
    *,
    stride: int,
    batch_size: int,
    dtype: torch.dtype | None = None,
) -> NDArray[np.float64]:
    """-ln p of each predicted token of `stream` (its first token is context only), (len(stream) - 1,).

    Windows are as long as `model.context`; the model should be in evaluation mode.
    """
    device = next(model.parameters()).device
    nats = np.full(len(stream) - 1, np.nan)
    spans = list(windows(len(stream) - 1, model.context, stride))
    for i in range(0, len(spans), batch_size):
        part = spans[i : i + batch_size]
        ids = torch.from_numpy(np.stack([stream[s : s + n + 1] for s, n, _ in part]).astype(np.int64)).to(device)
        # Logits only from the first position that counts in any window of the batch: they are most of the cost.
        first = min(new for _, _, new in part)
        hidden = model.hidden(ids[:, :-1], dtype=dtype)[:, first:]
        logits = model.logits(hidden).float()
        losses = F.cross_entropy(logits.flatten(0, 1), ids[:, 1 + first :].flatten(), reduction="none")
        rows = losses.view(len(part), -1).double().cpu().numpy()
        for row, (start, length, new) in zip(rows, part, strict=True):
            nats[start + new : start + length] = row[new - first :]
    return nats


def score(
    nats: NDArray[np.float64], stream: NDArray[np.unsignedinteger], token_bytes: NDArray[np.int32], eos: int
) -> Score:
    """Sum what `token_nats` found, over the split, by story and by position in the story."""
    targets = np.asarray(stream[1:])
    lengths = token_bytes[targets].astype(np.int64)
    ends = np.flatnonzero(targets == eos)
    starts = np.concatenate([[0], ends[:-1] + 1])
    story_bits = np.add.reduceat(nats, starts) / math.log(2)
    story_bytes = np.add.reduceat(lengths, starts)
    before = np.cumsum(lengths) - lengths  # bytes of the split before each token
    offset = before - np.repeat(before[starts], np.diff(np.append(starts, len(targets))))
    return Score(
        nats=float(nats.sum()),
        tokens=len(targets),
        bytes=int(lengths.sum()),
        story_bits=story_bits,
        story_bytes=story_bytes,
        by_position=list(_by_position(nats, lengths, offset)),
    )


def _by_position(
    nats: NDArray[np.float64], lengths: NDArray[np.int64], offset: NDArray[np.int64]
) -> Iterator[dict[str, float | None]]:
    for low, high in zip(POSITIONS, (*POSITIONS[1:], None), strict=True):
        inside = (offset >= low) & (offset < (high or np.iinfo(np.int64).max))
        size = int(lengths[inside].sum())
        if size:
            yield {"from": low, "to": high, "bpb": float(nats[inside].sum() / math.log(2) / size)}
