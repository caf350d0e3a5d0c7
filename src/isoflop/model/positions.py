"""Rotary position embedding. B batch, T time, H heads, C head size."""

from __future__ import annotations

import torch
from torch import Tensor


def rope_table(head_dim: int, length: int, theta: float) -> Tensor:
    """Angles as unit complex numbers, (length, head_dim / 2), computed in float64, kept as complex64.

    Pair i of position t turns by t * theta^(-2i / head_dim) (Su et al. 2021, arXiv 2104.09864, equation 15).
    """
    frequencies = theta ** (-torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)
    angles = torch.arange(length, dtype=torch.float64)[:, None] * frequencies
    return torch.polar(torch.ones_like(angles), angles).to(torch.complex64)


def rotate(x_BTHC: Tensor, table_TC: Tensor) -> Tensor:
    """Turn the interleaved pairs (x0, x1), (x2, x3), ... of every head by the angles of its position.

    In float32 whatever the dtype of x: a bf16 angle would move far positions by whole turns' fractions.
    """
    pairs = torch.view_as_complex(x_BTHC.float().reshape(*x_BTHC.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * table_TC[:, None, :]).flatten(-2).to(x_BTHC.dtype)
