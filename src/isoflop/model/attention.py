"""Causal self-attention with shared key and value heads, and its cache.

B batch, T queries, S keys, D d_model, H query heads, K key-value heads, G = H / K, C head size.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from isoflop.config import ModelConfig
from isoflop.model.layers import Linear, RMSNorm
from isoflop.model.positions import rotate


class KVCache:
    """Keys and values of one layer, (B, K, capacity, C) each, filled from the left."""

    def __init__(self, batch: int, config: ModelConfig, capacity: int, like: Tensor) -> None:
        shape = (batch, config.n_kv_head, capacity, config.head_dim)
        self.k = like.new_zeros(shape)
        self.v = like.new_zeros(shape)
        self.length = 0

    def append(self, k_BKTC: Tensor, v_BKTC: Tensor) -> tuple[Tensor, Tensor]:
        """Store T more keys and values; return all of them, (B, K, length, C)."""
        end = self.length + k_BKTC.shape[2]
        self.k[:, :, self.length : end] = k_BKTC
        self.v[:, :, self.length : end] = v_BKTC
        self.length = end
        return self.k[:, :, :end], self.v[:, :, :end]


class Attention(nn.Module):
    """Multi-head (K = H), grouped-query or multi-query (K = 1) attention (Ainslie et al. 2023, 2305.13245)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        kv_dim = config.n_kv_head * config.head_dim
        self.q = Linear(config.d_model, config.d_model)
        self.k = Linear(config.d_model, kv_dim)
        self.v = Linear(config.d_model, kv_dim)
        self.out = Linear(config.d_model, config.d_model)
        self.q_norm = RMSNorm(config.head_dim, config.norm_eps) if config.qk_norm else nn.Identity()
        self.k_norm = RMSNorm(config.head_dim, config.norm_eps) if config.qk_norm else nn.Identity()

    def forward(self, x_BTD: Tensor, rope_TC: Tensor, cache: KVCache | None = None) -> Tensor:
        heads = (-1, self.config.head_dim)
        q_BTHC = self.q_norm(self.q(x_BTD).unflatten(-1, heads))
        k_BTKC = self.k_norm(self.k(x_BTD).unflatten(-1, heads))
        v_BKTC = self.v(x_BTD).unflatten(-1, heads).transpose(1, 2)
        q_BHTC = rotate(q_BTHC, rope_TC).transpose(1, 2)
        k_BKTC = rotate(k_BTKC, rope_TC).transpose(1, 2)
        if cache is not None:
            k_BKTC, v_BKTC = cache.append(k_BKTC, v_BKTC)
        y_BHTC = attend(q_BHTC, k_BKTC, v_BKTC)
        y_BTD: Tensor = self.out(y_BHTC.transpose(1, 2).flatten(-2))
        return y_BTD


def attend(q_BHTC: Tensor, k_BKSC: Tensor, v_BKSC: Tensor) -> Tensor:
    """Causal softmax attention of the last T positions over all S, (B, H, T, C).

    On a GPU the fused kernel; on a CPU the explicit matmuls, whose backward is faster at these sizes.
    """
    if q_BHTC.is_cuda and q_BHTC.shape[2] == k_BKSC.shape[2]:
        return F.scaled_dot_product_attention(q_BHTC, k_BKSC, v_BKSC, is_causal=True, enable_gqa=True)
    return attend_explicitly(q_BHTC, k_BKSC, v_BKSC)


def attend_explicitly(q_BHTC: Tensor, k_BKSC: Tensor, v_BKSC: Tensor) -> Tensor:
    """The same as matmul, mask, softmax in float32, matmul. Query t stands at position S - T + t."""
    batch, heads, t, size = q_BHTC.shape
    kv_heads, s = k_BKSC.shape[1:3]
    # Queries that share a KV head are rows of one matmul: no copy of keys and values per query head.
    q_BKRC = q_BHTC.reshape(batch, kv_heads, heads // kv_heads * t, size)
    scores_BKRS = (q_BKRC * size**-0.5) @ k_BKSC.transpose(-2, -1)
    scores = scores_BKRS.view(batch, heads, t, s)
    if t > 1:
        scores = scores + causal_mask(t, s, scores.dtype, scores.device)
    weights: Tensor = scores.softmax(-1)
    y_BKRC = weights.view(batch, kv_heads, -1, s) @ v_BKSC
    return y_BKRC.view(batch, heads, t, size)


def causal_mask(t: int, s: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """(t, s): 0 where query t (at position s - t + t) may look, -inf to its right."""
    mask: Tensor = torch.full((t, s), float("-inf"), dtype=dtype, device=device)
    return mask.triu(s - t + 1)
