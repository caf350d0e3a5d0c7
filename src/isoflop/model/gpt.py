"""The decoder. B batch, T time, D d_model, V vocabulary."""

from __future__ import annotations

import hashlib
import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from isoflop.config import ModelConfig
from isoflop.model.attention import Attention, KVCache
from isoflop.model.layers import Linear, RMSNorm, SwiGLU
from isoflop.model.positions import rope_table


class Block(nn.Module):
    """Pre-norm: x + attention(norm(x)), then x + mlp(norm(x))."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.attention_norm = RMSNorm(config.d_model, config.norm_eps)
        self.attention = Attention(config)
        self.mlp_norm = RMSNorm(config.d_model, config.norm_eps)
        self.mlp = SwiGLU(config.d_model, config.d_ff)

    def forward(self, x_BTD: Tensor, rope_TC: Tensor, dtype: torch.dtype, cache: KVCache | None = None) -> Tensor:
        """The residual stream stays float32; only what the matmuls read is cast to `dtype`."""
        x_BTD = x_BTD + self.attention(self.attention_norm(x_BTD).to(dtype), rope_TC, cache)
        y_BTD: Tensor = x_BTD + self.mlp(self.mlp_norm(x_BTD).to(dtype))
        return y_BTD


class GPT(nn.Module):
    """Llama-style decoder: RoPE, RMSNorm, SwiGLU, no biases (Touvron et al. 2023, arXiv 2302.13971)."""

    rope: Tensor

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab_size, config.d_model)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.n_layer))
        self.final_norm = RMSNorm(config.d_model, config.norm_eps)
        self.head = None if config.tie_embeddings else Linear(config.d_model, config.vocab_size)
        table = rope_table(config.head_dim, config.block_size, config.rope_theta)
        self.register_buffer("rope", table, persistent=False)

    def hidden(self, ids_BT: Tensor, cache: list[KVCache] | None = None, dtype: torch.dtype | None = None) -> Tensor:
        """Final normalised states (B, T, D) of token ids, matmuls in `dtype` (default: the weights')."""
        start = cache[0].length if cache else 0
        end = start + ids_BT.shape[1]
        assert end <= self.rope.shape[0], "the caller keeps the context within block_size"
        x_BTD = self.embedding(ids_BT)
        dtype = dtype or x_BTD.dtype
        for i, block in enumerate(self.blocks):
            x_BTD = block(x_BTD, self.rope[start:end], dtype, cache[i] if cache else None)
        normed: Tensor = self.final_norm(x_BTD).to(dtype)
        return normed

    def logits(self, hidden_BTD: Tensor) -> Tensor:
        """(B, T, V) in the dtype of `hidden`."""
        weight = self.embedding.weight if self.head is None else self.head.weight
        return F.linear(hidden_BTD, weight.to(hidden_BTD.dtype))

    def forward(self, ids_BT: Tensor, cache: list[KVCache] | None = None, dtype: torch.dtype | None = None) -> Tensor:
        """Logits (B, T, V) for the token after each of `ids`."""
        return self.logits(self.hidden(ids_BT, cache, dtype))

    def new_cache(self, batch: int, capacity: int | None = None) -> list[KVCache]:
        """An empty cache per layer for `batch` sequences."""
        size = capacity or self.config.block_size
        return [KVCache(batch, self.config, size, self.embedding.weight) for _ in self.blocks]

    @torch.no_grad()
    def initialise(self, seed: int) -> None:
        """N(0, init_std), output projections N(0, init_std / sqrt(2 L)) (Radford et al. 2019), gains 1.

        Each parameter draws from a generator of its own, seeded by its name: where two arms agree in name and
        shape they begin with the same weights, whatever else differs.
        """
        scaled = self.config.init_std / math.sqrt(2 * self.config.n_layer)
        for name, parameter in self.named_parameters():
            if parameter.ndim < 2:
                parameter.fill_(1.0)
                continue
            std = scaled if name.endswith(("attention.out.weight", "mlp.down.weight")) else self.config.init_std
            digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
            generator = torch.Generator().manual_seed(int.from_bytes(digest[:7], "little"))
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * std)
