"""Exact parameters and training FLOPs of a model, from its configuration alone.

Nothing here imports torch: plans are made, and arms matched in compute, before any model exists.
"""

from __future__ import annotations

from isoflop.config import ModelConfig


def parameter_table(config: ModelConfig) -> dict[str, int]:
    """Parameters by part; the sum equals `sum(p.numel() for p in model.parameters())` to the last one."""
    d, kv = config.d_model, config.n_kv_head * config.head_dim
    return {
        "embedding": config.vocab_size * d,
        "attention": config.n_layer * (2 * d * d + 2 * d * kv + 2 * config.head_dim * config.qk_norm),
        "mlp": config.n_layer * 3 * d * config.d_ff,
        "norms": config.n_layer * 2 * d + d,
        "head": 0 if config.tie_embeddings else config.vocab_size * d,
    }


def parameters(config: ModelConfig) -> int:
    """All parameters; a tied head is counted once, with the embedding."""
    return sum(parameter_table(config).values())


def non_embedding_parameters(config: ModelConfig) -> int:
    """Parameters without the token embedding and without the head."""
    table = parameter_table(config)
    return sum(table.values()) - table["embedding"] - table["head"]


def flops_per_token(config: ModelConfig) -> int:
    """Training FLOPs per token, forward and backward: 6 (N + V d) + 6 L T d.

    N are the non-embedding parameters. The head's matmul V d counts whether or not it is tied; looking up
    an embedding costs nothing. Causal attention sees (T + 1) / 2 keys on average, taken as T / 2: scores and
    values are 2 matmuls of 2 d FLOPs per key, times 3 for forward and backward (Kaplan et al. 2020, arXiv
    2001.08361, appendix B counts the same matmuls, with the full T).
    """
    matmuls = non_embedding_parameters(config) + config.vocab_size * config.d_model
    return 6 * matmuls + 6 * config.n_layer * config.block_size * config.d_model


def kv_cache_bytes_per_token(config: ModelConfig, bytes_per_value: int = 4) -> int:
    """Bytes that one more token of context adds to the KV cache of one sequence."""
    return 2 * config.n_layer * config.n_kv_head * config.head_dim * bytes_per_value
