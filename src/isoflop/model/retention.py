"""Gated retention: attention without softmax, whose memory is one matrix per head and does not grow with context.

Sun et al. 2024 (arXiv 2405.05254, section 3.1): S_t = g_t S_{t-1} + k_t^T v_t and y_t = q_t S_t, with a decay
g_t = sigmoid(x_t W_g + b)^(1/16) per head that depends on the input, and a norm per head behind it. Left out is the
paper's output gate: the layer then has the parameters of an attention layer and the decay's. The decay orders the
tokens, so queries and keys are not rotated.

B batch, T time, D d_model, H heads, K key-value heads, C head size.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from isoflop.config import ModelConfig
from isoflop.model.layers import Linear, RMSNorm

TAU = 16.0


class RetentionState:
    """The memory of one layer: S, (B, H, C, C), float32."""

    def __init__(self, batch: int, config: ModelConfig, like: Tensor) -> None:
        self.s = like.new_zeros(batch, config.n_head, config.head_dim, config.head_dim, dtype=torch.float32)
        self.length = 0


class Retention(nn.Module):
    """A layer in the place of `Attention`, with the same projections and a decay per head."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.head_dim, self.groups, self.eps = config.head_dim, config.n_head // config.n_kv_head, config.norm_eps
        kv_dim = config.n_kv_head * config.head_dim
        self.q = Linear(config.d_model, config.d_model, bias=config.bias.qkv)
        self.k = Linear(config.d_model, kv_dim, bias=config.bias.qkv)
        self.v = Linear(config.d_model, kv_dim, bias=config.bias.qkv)
        self.decay = Linear(config.d_model, config.n_head, bias=True)
        self.out = Linear(config.d_model, config.d_model, bias=config.bias.proj)
        self.q_norm = RMSNorm(config.head_dim, config.norm_eps) if config.qk_norm else nn.Identity()
        self.k_norm = RMSNorm(config.head_dim, config.norm_eps) if config.qk_norm else nn.Identity()

    def forward(self, x_BTD: Tensor, rope_TC: Tensor | None, state: RetentionState | None = None) -> Tensor:
        heads = (-1, self.head_dim)
        q_BHTC = self.q_norm(self.q(x_BTD).unflatten(-1, heads)).transpose(1, 2)
        k_BHTC = self.k_norm(self.k(x_BTD).unflatten(-1, heads)).transpose(1, 2).repeat_interleave(self.groups, 1)
        v_BHTC = self.v(x_BTD).unflatten(-1, heads).transpose(1, 2).repeat_interleave(self.groups, 1)
        log_decay_BHT = F.logsigmoid(self.decay(x_BTD).float()).transpose(1, 2) / TAU
        if state is None:
            y_BHTC = retain(q_BHTC, k_BHTC, v_BHTC, log_decay_BHT)
        else:
            y_BHTC, state.s = retain_from(state.s, q_BHTC, k_BHTC, v_BHTC, log_decay_BHT)
            state.length += x_BTD.shape[1]
        y_BHTC = F.rms_norm(y_BHTC, y_BHTC.shape[-1:], eps=self.eps)
        y_BTD: Tensor = self.out(y_BHTC.transpose(1, 2).flatten(-2))
        return y_BTD


def retain(q_BHTC: Tensor, k_BHTC: Tensor, v_BHTC: Tensor, log_decay_BHT: Tensor) -> Tensor:
    """All positions at once: y_t = sum over s <= t of (q_t k_s / sqrt C) exp(c_t - c_s) v_s.

    c is the cumulated logarithm of the decay.
    """
    scores = (q_BHTC * q_BHTC.shape[-1] ** -0.5) @ k_BHTC.transpose(-2, -1)
    y_BHTC: Tensor = (scores * decay_matrix(log_decay_BHT).to(scores.dtype)) @ v_BHTC
    return y_BHTC


def retain_from(
    s_BHCC: Tensor, q_BHTC: Tensor, k_BHTC: Tensor, v_BHTC: Tensor, log_decay_BHT: Tensor
) -> tuple[Tensor, Tensor]:
    """The same for T more positions after a memory; the outputs and the memory behind them."""
    q_BHTC, k_BHTC, v_BHTC = q_BHTC.float(), k_BHTC.float(), v_BHTC.float()
    cumulated = log_decay_BHT.cumsum(-1)
    total = cumulated[..., -1:]
    old = (q_BHTC * q_BHTC.shape[-1] ** -0.5 * cumulated.exp()[..., None]) @ s_BHCC
    new = retain(q_BHTC, k_BHTC, v_BHTC, log_decay_BHT)
    kept = k_BHTC * (total - cumulated).exp()[..., None]
    return old + new, s_BHCC * total.exp()[..., None] + kept.transpose(-2, -1) @ v_BHTC


def decay_matrix(log_decay_BHT: Tensor) -> Tensor:
    """(B, H, T, T): exp(c_t - c_s) for s <= t, else 0. Differences, not quotients: exp(-c_s) alone overflows."""
    cumulated = log_decay_BHT.cumsum(-1)
    difference = cumulated[..., :, None] - cumulated[..., None, :]
    t = log_decay_BHT.shape[-1]
    future = torch.ones(t, t, dtype=torch.bool, device=log_decay_BHT.device).triu(1)
    return difference.masked_fill(future, float("-inf")).exp()
