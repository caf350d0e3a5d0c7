"""Causal self-attention with shared key and value heads, full or in a window, and its cache.

B batch, T queries, S keys, D d_model, H query heads, K key-value heads, G = H / K, C head size, W window.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

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
    """Multi-head (K = H), grouped-query or multi-query (K = 1) attention (Ainslie et al. 2023, 2305.13245).

    `window` is the number of keys a query sees, itself included; 0: all before it.
    """

    def __init__(self, config: ModelConfig, window: int = 0) -> None:
        super().__init__()
        self.head_dim, self.window, self.dropout = config.head_dim, window, config.dropout
        kv_dim = config.n_kv_head * config.head_dim
        self.q = Linear(config.d_model, config.d_model, bias=config.bias.qkv)
        self.k = Linear(config.d_model, kv_dim, bias=config.bias.qkv)
        self.v = Linear(config.d_model, kv_dim, bias=config.bias.qkv)
        self.out = Linear(config.d_model, config.d_model, bias=config.bias.proj)
        self.q_norm = RMSNorm(config.head_dim, config.norm_eps) if config.qk_norm else nn.Identity()
        self.k_norm = RMSNorm(config.head_dim, config.norm_eps) if config.qk_norm else nn.Identity()

    def forward(self, x_BTD: Tensor, rope_TC: Tensor | None, cache: KVCache | None = None) -> Tensor:
        heads = (-1, self.head_dim)
        q_BHTC = self.q_norm(self.q(x_BTD).unflatten(-1, heads)).transpose(1, 2)
        k_BKTC = self.k_norm(self.k(x_BTD).unflatten(-1, heads)).transpose(1, 2)
        v_BKTC = self.v(x_BTD).unflatten(-1, heads).transpose(1, 2)
        if rope_TC is not None:
            q_BHTC, k_BKTC = rotate(q_BHTC, rope_TC), rotate(k_BKTC, rope_TC)
        if cache is not None:
            k_BKTC, v_BKTC = cache.append(k_BKTC, v_BKTC)
        dropout = self.dropout if self.training else 0.0
        y_BHTC = attend(q_BHTC, k_BKTC, v_BKTC, window=self.window, dropout=dropout)
        y_BTD: Tensor = self.out(y_BHTC.transpose(1, 2).flatten(-2))
        return y_BTD


def attend(q_BHTC: Tensor, k_BKSC: Tensor, v_BKSC: Tensor, *, window: int = 0, dropout: float = 0.0) -> Tensor:
    """Causal softmax attention of the last T positions over all S, (B, H, T, C).

    On a GPU the fused kernel; on a CPU the explicit matmuls, whose backward is faster at these sizes. A window that is
    short against T is computed by blocks, so that neither time nor memory grows with T x T.
    """
    t, s = q_BHTC.shape[2], k_BKSC.shape[2]
    if window and t == s and t % window == 0 and t >= 3 * window:
        return _attend_in_blocks(q_BHTC, k_BKSC, v_BKSC, window, dropout)
    if q_BHTC.is_cuda and t == s and not 0 < window < s:
        return F.scaled_dot_product_attention(
            q_BHTC, k_BKSC, v_BKSC, is_causal=True, dropout_p=dropout, enable_gqa=True
        )
    mask = mask_for(q_BHTC, t, s, window) if t > 1 or 0 < window < s else None
    return attend_explicitly(q_BHTC, k_BKSC, v_BKSC, mask, dropout)


def attend_explicitly(
    q_BHTC: Tensor, k_BKSC: Tensor, v_BKSC: Tensor, mask_TS: Tensor | None, dropout: float = 0.0
) -> Tensor:
    """Matmul, mask (added), softmax, matmul. Leading dimensions besides B are allowed before the heads."""
    *batch, heads, t, size = q_BHTC.shape
    kv_heads = k_BKSC.shape[-3]
    groups = heads // kv_heads
    # Queries that share a KV head are rows of one matmul: no copy of keys and values per query head.
    q_BKRC = q_BHTC.reshape(*batch, kv_heads, groups * t, size)
    scores_BKRS = (q_BKRC * size**-0.5) @ k_BKSC.transpose(-2, -1)
    mask = mask_TS if mask_TS is None or groups == 1 else torch.cat([mask_TS] * groups, dim=-2)
    if torch.compiler.is_compiling():
        weights: Tensor = (scores_BKRS if mask is None else scores_BKRS + mask).softmax(-1)
    else:
        weights = _MaskedSoftmax.apply(scores_BKRS, mask)  # type: ignore[no-untyped-call]
    if dropout:
        weights = F.dropout(weights, dropout)
    return (weights @ v_BKSC).view(*batch, heads, t, size)


class _MaskedSoftmax(torch.autograd.Function):
    """`(scores + mask).softmax(-1)` in the memory of the scores, and its gradient in that of the incoming one.

    The same bits as PyTorch's own operations, which write a new T x T array each time: on a CPU that is a third of the
    time of attention. A compiler does this by itself.
    """

    @staticmethod
    def forward(ctx: Any, scores: Tensor, mask: Tensor | None) -> Tensor:
        if mask is not None:
            scores.add_(mask)
        torch.softmax(scores, -1, out=scores)
        ctx.mark_dirty(scores)
        ctx.save_for_backward(scores)
        return scores

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (weights,) = ctx.saved_tensors
        # `grad` comes from the matmul, or the dropout, behind the softmax, and nobody else reads it.
        torch.ops.aten._softmax_backward_data.out(grad, weights, -1, weights.dtype, grad_input=grad)
        return grad, None


def _attend_in_blocks(q_BHTC: Tensor, k_BKTC: Tensor, v_BKTC: Tensor, window: int, dropout: float) -> Tensor:
    """Each block of W queries sees its own block of keys and the one before: 2 W keys instead of T."""

    def blocks(x_BHTC: Tensor) -> Tensor:  # (B, blocks, heads, W, C)
        batch, heads, t, size = x_BHTC.shape
        return x_BHTC.reshape(batch, heads, t // window, window, size).transpose(1, 2)

    def with_previous(x_BKTC: Tensor) -> Tensor:  # (B, blocks, heads, 2 W, C); before the first block stand zeros
        padded = F.pad(x_BKTC, (0, 0, window, 0))
        return torch.cat([blocks(padded)[:, :-1], blocks(padded)[:, 1:]], dim=3)

    n = q_BHTC.shape[2] // window
    mask = mask_for(q_BHTC, window, 2 * window, window).repeat(n, 1, 1, 1)
    mask[0, :, :, :window] = float("-inf")
    y = attend_explicitly(blocks(q_BHTC), with_previous(k_BKTC), with_previous(v_BKTC), mask, dropout)
    return y.transpose(1, 2).flatten(2, 3)


def mask_for(like: Tensor, t: int, s: int, window: int = 0) -> Tensor:
    """`causal_mask` in the dtype of `like`; where a compiler traces, not the cached one: it is computed where added."""
    make = make_causal_mask if torch.compiler.is_compiling() else causal_mask
    return make(t, s, window, like.dtype, like.device)


def make_causal_mask(t: int, s: int, window: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """(t, s): 0 where query i, at position s - t + i, may look; -inf right of it, and W or more to its left."""
    with torch.inference_mode(False):  # a cached inference tensor could not be used in training afterwards
        position = torch.arange(s - t, s, device=device)[:, None]
        key = torch.arange(s, device=device)
        hidden = (key > position) | ((key <= position - window) if window else False)
        return torch.zeros(t, s, dtype=dtype, device=device).masked_fill_(hidden, float("-inf"))


causal_mask = lru_cache(maxsize=16)(make_causal_mask)
