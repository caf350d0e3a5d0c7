"""The decoder. B batch, T time, D d_model, V vocabulary."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from isoflop.config import ModelConfig
from isoflop.model.attention import Attention, KVCache
from isoflop.model.initialisation import initialise
from isoflop.model.layers import MLP, Linear, make_norm
from isoflop.model.positions import Scaling, rope_table
from isoflop.model.retention import Retention, RetentionState

Cache = list[KVCache | RetentionState]


class Block(nn.Module):
    """Pre-norm: x + attention(norm(x)), then x + mlp(norm(x))."""

    def __init__(self, config: ModelConfig, layer: int) -> None:
        super().__init__()
        self.attention_norm = make_norm(config)
        linear = config.attention_of(layer) == "linear"
        self.attention = Retention(config) if linear else Attention(config, config.window_of(layer))
        self.mlp_norm = make_norm(config)
        self.mlp = MLP(config)
        self.dropout = config.dropout

    def forward(
        self,
        x_BTD: Tensor,
        rope_TC: Tensor | None,
        dtype: torch.dtype,
        cache: KVCache | RetentionState | None = None,
    ) -> Tensor:
        """The residual stream stays float32; only what the matmuls read is cast to `dtype`."""
        x_BTD = x_BTD + self._drop(self.attention(self.attention_norm(x_BTD).to(dtype), rope_TC, cache))
        y_BTD: Tensor = x_BTD + self._drop(self.mlp(self.mlp_norm(x_BTD).to(dtype)))
        return y_BTD

    def _drop(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.dropout, self.training) if self.dropout else x


class GPT(nn.Module):
    """A decoder of the GPT-2 and Llama families, by the settings of `model`."""

    rope: Tensor

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab_size, config.d_model)
        learned = config.positions == "learned"
        self.position = nn.Embedding(config.block_size, config.d_model) if learned else None
        self.blocks = nn.ModuleList(Block(config, layer) for layer in range(config.n_layer))
        self.final_norm = make_norm(config)
        self.head = None if config.tie_embeddings else Linear(config.d_model, config.vocab_size)
        self.mtp = NextTokenModule(config) if config.mtp else None
        self.register_buffer("rope", torch.empty(0), persistent=False)
        self.stretch(config.block_size)

    @property
    def context(self) -> int:
        """Tokens that the model may see at once: block_size, unless `stretch` has changed it."""
        return self._context

    def stretch(self, context: int, scaling: Scaling = "none") -> None:
        """Make the model work at `context` tokens, rotating as `rope_table` says of `scaling`.

        Learned positions end at block_size: more than that is the caller's to refuse.
        """
        config = self.config
        assert self.position is None or context <= config.block_size
        self._context = context
        if config.positions == "rope":
            table = rope_table(config.head_dim, context, config.rope_theta, trained=config.block_size, scaling=scaling)
            self.rope = table.to(self.embedding.weight.device)

    def initialise(self, seed: int) -> None:
        """Draw the weights, as `model.init` says."""
        initialise(self, self.config, seed)

    def residual(self, ids_BT: Tensor, cache: Cache | None = None, dtype: torch.dtype | None = None) -> Tensor:
        """States (B, T, D) behind the last block, float32; matmuls in `dtype` (default: the weights')."""
        start = cache[0].length if cache else 0
        end = start + ids_BT.shape[1]
        assert end <= self.context, "the caller keeps the context within block_size"
        x_BTD: Tensor = self.embedding(ids_BT)
        if self.position is not None:
            x_BTD = x_BTD + self.position.weight[start:end]
        if self.config.dropout:
            x_BTD = F.dropout(x_BTD, self.config.dropout, self.training)
        rope_TC = self.rope[start:end] if self.config.positions == "rope" else None
        for i, block in enumerate(self.blocks):
            x_BTD = block(x_BTD, rope_TC, dtype or x_BTD.dtype, cache[i] if cache else None)
        return x_BTD

    def hidden(self, ids_BT: Tensor, cache: Cache | None = None, dtype: torch.dtype | None = None) -> Tensor:
        """Final normalised states (B, T, D), in `dtype`."""
        x_BTD = self.residual(ids_BT, cache, dtype)
        normed: Tensor = self.final_norm(x_BTD).to(dtype or x_BTD.dtype)
        return normed

    def logits(self, hidden_BTD: Tensor) -> Tensor:
        """(B, T, V) in the dtype of `hidden`."""
        weight = self.embedding.weight if self.head is None else self.head.weight
        return F.linear(hidden_BTD, weight.to(hidden_BTD.dtype))

    def forward(self, ids_BT: Tensor, cache: Cache | None = None, dtype: torch.dtype | None = None) -> Tensor:
        """Logits (B, T, V) for the token after each of `ids`."""
        return self.logits(self.hidden(ids_BT, cache, dtype))

    def loss(self, ids_BT: Tensor, targets_BT: Tensor, dtype: torch.dtype | None = None) -> tuple[Tensor, Tensor]:
        """(what is minimised, mean nats of the next token); the two differ with `mtp`."""
        x_BTD = self.residual(ids_BT, dtype=dtype)
        hidden_BTD = self.final_norm(x_BTD).to(dtype or x_BTD.dtype)
        loss = self._nats(hidden_BTD, targets_BT)
        if self.mtp is None:
            return loss, loss
        rope_TC = self.rope[: ids_BT.shape[1] - 1] if self.config.positions == "rope" else None
        second_BTD = self.mtp(x_BTD[:, :-1], self.embedding(targets_BT[:, :-1]), rope_TC, dtype or x_BTD.dtype)
        return loss + self.config.mtp_weight * self._nats(second_BTD, targets_BT[:, 1:]), loss

    def _nats(self, hidden_BTD: Tensor, targets_BT: Tensor) -> Tensor:
        return F.cross_entropy(self.logits(hidden_BTD).float().flatten(0, 1), targets_BT.flatten())

    def new_cache(self, batch: int, capacity: int | None = None) -> Cache:
        """An empty cache per layer for `batch` sequences."""
        like, size = self.embedding.weight, capacity or self.context
        return [
            RetentionState(batch, self.config, like)
            if isinstance(block.attention, Retention)
            else KVCache(batch, self.config, size, like)
            for block in self.blocks
        ]


class NextTokenModule(nn.Module):
    """Predicts the token after the next, in sequence behind the trunk (DeepSeek-V3, arXiv 2412.19437, section 2.2).

    block(project([norm(h_i); norm(embedding of token i + 1)])), then a norm; embedding and head are the trunk's own.
    It is trained with the trunk and not used by evaluation or sampling.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.state_norm = make_norm(config)
        self.token_norm = make_norm(config)
        self.project = Linear(2 * config.d_model, config.d_model)
        self.block = Block(config, config.n_layer - 1)
        self.final_norm = make_norm(config)

    def forward(self, x_BTD: Tensor, next_BTD: Tensor, rope_TC: Tensor | None, dtype: torch.dtype) -> Tensor:
        joined = torch.cat([self.state_norm(x_BTD), self.token_norm(next_BTD)], dim=-1)
        y_BTD = self.block(self.project(joined.to(dtype)).float(), rope_TC, dtype)
        normed: Tensor = self.final_norm(y_BTD).to(dtype)
        return normed
