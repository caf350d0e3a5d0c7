"""Rotary position embedding, and its stretching beyond the context that a model was trained at.

B batch, T time, H heads, C head size.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

Scaling = Literal["none", "linear", "ntk", "yarn"]

# YaRN: a pair that turns more than FAST times within the trained context is left alone, one that turns less than SLOW
# times is interpolated (Peng et al. 2023, arXiv 2309.00071, section 3.2 and its values for Llama).
SLOW, FAST = 1.0, 32.0


def rope_table(
    head_dim: int, length: int, theta: float, *, trained: int | None = None, scaling: Scaling = "none"
) -> Tensor:
    """Cosine and sine of the angles, (length, head_dim / 2, 2), computed in float64, kept in float32.

    Pair i of position t turns by t * theta^(-2i / head_dim) (Su et al. 2021, arXiv 2104.09864, equation 15). With a
    `scaling`, a model `trained` at fewer positions is stretched by s = length / trained: linear divides all angles by
    s (Chen et al. 2023, arXiv 2306.15595); ntk raises theta by s^(C / (C - 2)), so that the slowest pair is
    interpolated and the fastest is not; yarn mixes the two by pair and multiplies attention's logits by
    (0.1 ln s + 1)^2, here as the length of (cosine, sine), which queries and keys both get.
    """
    stretch = max(1.0, length / trained) if trained else 1.0
    exponents = torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim
    magnitude = 1.0
    if scaling == "ntk":
        theta *= stretch ** (head_dim / max(1, head_dim - 2))
    frequencies = theta**-exponents
    if scaling == "linear":
        frequencies = frequencies / stretch
    elif scaling == "yarn" and trained:
        turns = trained * frequencies / (2 * math.pi)
        kept = ((turns - SLOW) / (FAST - SLOW)).clamp(0, 1)
        frequencies = frequencies * kept + frequencies / stretch * (1 - kept)
        magnitude = 0.1 * math.log(stretch) + 1
    angles = torch.arange(length, dtype=torch.float64)[:, None] * frequencies
    return (magnitude * torch.stack([angles.cos(), angles.sin()], dim=-1)).float()


def rotate(x_BHTC: Tensor, table_TC: Tensor) -> Tensor:
    """Turn the interleaved pairs (x0, x1), (x2, x3), ... of every head by the angles of its position.

    In float32 whatever the dtype of x: a bf16 angle would move far positions by whole turns' fractions. The result is
    contiguous, as attention's matmuls want it: the cast has to write anew anyway.
    """
    x32 = x_BHTC.to(torch.float32, memory_format=torch.contiguous_format)
    x32 = x32.view(*x32.shape[:-1], -1, 2)
    if torch.compiler.is_compiling():
        (a, b), (cos, sin) = x32.unbind(-1), table_TC.unbind(-1)
        turned = torch.stack([a * cos - b * sin, a * sin + b * cos], -1)
    else:  # one multiplication of complex numbers, which a compiler does not know, takes a sixth of the time
        turned = torch.view_as_real(torch.view_as_complex(x32) * torch.view_as_complex(table_TC))
    return turned.flatten(-2).to(x_BHTC.dtype)
