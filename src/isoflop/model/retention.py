"""Gated retention: attention without softmax, whose memory is one matrix per head and does not grow with context.

Sun et al. 2024 (arXiv 2405.05254, section 3.1): S_t = g_t S_{t-1} + k_t^T v_t and y_t = q_t S_t, with a decay
g_t = sigmoid(x_t W_g + b)^(1/16) per head that depends on the input, and a norm per head behind it. Left out is the
paper's output gate: the layer then has the parameters of an attention layer and the decay's. The decay orders the
tokens, so queries and keys are not rotated.

B batch, T time, D d_model, H heads, K key-value heads, C head size, N chunks of L.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from isoflop.config import ModelConfig
from isoflop.model.attention import mask_for
from isoflop.model.cost import RETENTION_CHUNK
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
        y_BHTC, s_BHCC = retain(q_BHTC, k_BHTC, v_BHTC, log_decay_BHT, None if state is None else state.s)
        if state is not None:
            state.s = s_BHCC
            state.length += x_BTD.shape[1]
        y_BHTC = F.rms_norm(y_BHTC, y_BHTC.shape[-1:], eps=self.eps)
        y_BTD: Tensor = self.out(y_BHTC.transpose(1, 2).flatten(-2))
        return y_BTD


def retain(
    q_BHTC: Tensor,
    k_BHTC: Tensor,
    v_BHTC: Tensor,
    log_decay_BHT: Tensor,
    s_BHCC: Tensor | None = None,
    chunk: int = RETENTION_CHUNK,
) -> tuple[Tensor, Tensor]:
    """T positions after a memory (None: an empty one); the outputs and the memory behind them.

    y_t = sum over s <= t of (q_t k_s / sqrt C) exp(c_t - c_s) v_s, where c is the cumulated logarithm of the decay. The
    pairs of a chunk are computed all at once, what lies before it through the memory (the chunkwise form, as in Yang et
    al. 2023, arXiv 2312.06635): neither time nor memory grows with T x T. The memory has the dtype of `log_decay_BHT`.
    """
    t, size = q_BHTC.shape[2:]
    chunk = min(chunk, t)
    q_BHNLC, k_BHNLC, v_BHNLC = (_chunks(x, chunk) for x in (q_BHTC * size**-0.5, k_BHTC, v_BHTC))
    cumulated = _chunks(log_decay_BHT[..., None], chunk).squeeze(-1).cumsum(-1)
    total = cumulated[..., -1:]
    scores = (q_BHNLC @ k_BHNLC.transpose(-2, -1)) * decay_matrix(cumulated).to(q_BHNLC.dtype)
    kept = k_BHNLC * (total - cumulated).exp()[..., None].to(k_BHNLC.dtype)
    added = (kept.transpose(-2, -1) @ v_BHNLC).to(total.dtype)
    s = added.new_zeros(added[:, :, 0].shape) if s_BHCC is None else s_BHCC
    before = []  # unbind: an index per chunk would give each a gradient of the size of all
    for decay, new in zip(total.exp()[..., None].unbind(2), added.unbind(2), strict=True):
        before.append(s)
        s = s * decay + new
    from_before = (q_BHNLC * cumulated.exp()[..., None].to(q_BHNLC.dtype)) @ torch.stack(before, 2).to(q_BHNLC.dtype)
    y_BHNLC = scores @ v_BHNLC + from_before
    return y_BHNLC.flatten(2, 3)[:, :, :t], s


def _chunks(x_BHTC: Tensor, chunk: int) -> Tensor:
    """(B, H, N, L, C). Zeros fill the last chunk: no key, and a decay of 1, so the memory passes unchanged."""
    missing = -x_BHTC.shape[2] % chunk
    padded = F.pad(x_BHTC, (0, 0, 0, missing)) if missing else x_BHTC
    return padded.reshape(*padded.shape[:2], -1, chunk, padded.shape[-1])


def decay_matrix(cumulated_BHNL: Tensor) -> Tensor:
    """(B, H, N, L, L): exp(c_t - c_s) for s <= t, else 0. Differences, not quotients: exp(-c_s) alone overflows."""
    difference = cumulated_BHNL[..., :, None] - cumulated_BHNL[..., None, :]
    chunk = cumulated_BHNL.shape[-1]
    return (difference + mask_for(difference, chunk, chunk)).exp()
