"""Parts of a block that are not attention. B batch, T time, D d_model, F d_ff."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from isoflop.config import ModelConfig


class Linear(nn.Module):
    """`x @ weight.T + bias`, in the dtype of `x`.

    Weights stay float32 (master weights); in bf16 training they are cast once per use, and autograd casts the
    gradient back. Weights are (out, in), as everywhere.
    """

    def __init__(self, d_in: int, d_out: int, *, bias: bool = False) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(d_out, d_in))
        self.bias = nn.Parameter(torch.zeros(d_out)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        bias = None if self.bias is None else self.bias.to(x.dtype)
        return F.linear(x, self.weight.to(x.dtype), bias)


class RMSNorm(nn.Module):
    """x / rms(x) * gain, over the last dimension (Zhang & Sennrich 2019, arXiv 1910.07467)."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        gain = self.weight.to(x.dtype)
        if x.is_cuda or torch.compiler.is_compiling():
            return F.rms_norm(x, x.shape[-1:], gain, self.eps)
        normed: Tensor = _RMSNorm.apply(x, gain, self.eps)  # type: ignore[no-untyped-call]
        return normed


class _RMSNorm(torch.autograd.Function):
    """`F.rms_norm` in half the time: on a CPU PyTorch has no kernel for it and runs operation by operation."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, gain: Tensor, eps: float) -> Tensor:
        rms = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=torch.promote_types(x.dtype, torch.float32))
        scale = rms.square_().div_(x.shape[-1]).add_(eps).rsqrt_().to(x.dtype)
        normed = x * scale
        ctx.save_for_backward(normed, scale, gain)
        y: Tensor = normed * gain
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        normed, scale, gain = ctx.saved_tensors
        weighted = grad * normed
        along = (weighted @ gain[:, None]) / -normed.shape[-1]
        return (grad * gain).addcmul_(normed, along).mul_(scale), weighted.flatten(0, -2).sum(0), None


class LayerNorm(nn.Module):
    """(x - mean(x)) / sd(x) * gain + bias (Ba et al. 2016, arXiv 1607.06450)."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.bias = nn.Parameter(torch.zeros(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, x.shape[-1:], self.weight.to(x.dtype), self.bias.to(x.dtype), self.eps)


def make_norm(config: ModelConfig) -> nn.Module:
    """The norm of `model.norm` over d_model."""
    kind = RMSNorm if config.norm == "rmsnorm" else LayerNorm
    return kind(config.d_model, config.norm_eps)


class MLP(nn.Module):
    """The feed-forward part of a block, by `model.mlp`:

    swiglu: down(silu(gate(x)) * up(x)) (Shazeer 2020, arXiv 2002.05202); gelu: down(gelu(up(x))), tanh form as in
    GPT-2; relu2: down(relu(up(x))^2) (So et al. 2021, arXiv 2109.08668).
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        bias = config.bias.mlp
        self.kind = config.mlp
        self.gate = Linear(config.d_model, config.d_ff, bias=bias) if config.mlp == "swiglu" else None
        self.up = Linear(config.d_model, config.d_ff, bias=bias)
        self.down = Linear(config.d_ff, config.d_model, bias=bias)

    def forward(self, x_BTD: Tensor) -> Tensor:
        h_BTF: Tensor = self.up(x_BTD)
        if self.gate is not None:
            h_BTF = F.silu(self.gate(x_BTD)) * h_BTF
        elif self.kind == "gelu":
            h_BTF = F.gelu(h_BTF, approximate="tanh")
        else:
            h_BTF = F.relu(h_BTF).square()
        y_BTD: Tensor = self.down(h_BTF)
        return y_BTD
