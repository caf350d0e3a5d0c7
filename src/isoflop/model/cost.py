"""Exact parameters and training FLOPs of a model, from its configuration alone.

Nothing here imports torch: plans are made, and arms matched in compute, before any model exists.
"""

from __future__ import annotations

from isoflop.config import ModelConfig

RETENTION_CHUNK = 32  # positions that a linear layer computes at once


def parameter_table(config: ModelConfig) -> dict[str, int]:
    """Parameters by part; the sum equals `sum(p.numel() for p in model.parameters())` to the last one."""
    d, learned = config.d_model, config.positions == "learned"
    layers = range(config.n_layer)
    return {
        "embedding": config.vocab_size * d + (config.block_size * d if learned else 0),
        "attention": sum(_attention(config, layer) for layer in layers),
        "mlp": config.n_layer * _mlp(config),
        "block_norms": config.n_layer * 2 * _norm(config),
        "final_norm": _norm(config),
        "head": 0 if config.tie_embeddings else config.vocab_size * d,
        "mtp": _mtp(config),
    }


def parameters(config: ModelConfig) -> int:
    """All parameters; a tied head is counted once, with the embedding."""
    return sum(parameter_table(config).values())


def non_embedding_parameters(config: ModelConfig) -> int:
    """Parameters without the embeddings of tokens and positions and without the head."""
    table = parameter_table(config)
    return sum(table.values()) - table["embedding"] - table["head"]


def flops_per_token(config: ModelConfig) -> int:
    """Training FLOPs per token, forward and backward: 6 (N + V d) + the attention term.

    N are the non-embedding parameters. The head's matmul V d counts whether or not it is tied, and once more with
    `mtp`; looking up an embedding costs nothing. The optimiser's own arithmetic is not counted. The attention term is
    12 d per layer and key seen: scores and values are 2 matmuls of 2 d FLOPs per key, times 3 for forward and backward
    (Kaplan et al. 2020, arXiv 2001.08361, appendix B counts the same matmuls, with all T keys).
    """
    heads = 1 + config.mtp
    matmuls = non_embedding_parameters(config) + heads * config.vocab_size * config.d_model
    layers = [*range(config.n_layer), *[config.n_layer - 1] * config.mtp]
    attention = sum(12 * config.d_model * twice_keys_seen(config, layer) // 2 for layer in layers)
    return 6 * matmuls + attention


def twice_keys_seen(config: ModelConfig, layer: int) -> int:
    """Twice the mean number of keys per query: T with all of them, W (2 T - W) / T in a window W, rounded down.

    A linear layer counts what its chunked form computes, whatever T: the keys of a chunk of L, L / 2 on average as in
    full attention, and C more (the head size) for its memory, to which k^T v is added and which q is multiplied with:
    2 C^2 FLOPs each per head, as much as 2 matmuls with C keys.
    """
    t, w = config.block_size, config.window_of(layer)
    if config.attention_of(layer) == "linear":
        return min(RETENTION_CHUNK, t) + 2 * config.head_dim
    return w * (2 * t - w) // t if 0 < w < t else t


def kv_cache_bytes(config: ModelConfig, context: int, bytes_per_value: int = 4) -> int:
    """Bytes that a sequence of `context` tokens keeps for generating the next one.

    A window keeps its last W keys, a linear layer a matrix per head whatever the context.
    """
    values = 0
    for layer in range(config.n_layer):
        if config.attention_of(layer) == "linear":
            values += config.n_head * config.head_dim**2
        else:
            kept = min(context, config.window_of(layer) or context)
            values += 2 * config.n_kv_head * config.head_dim * kept
    return values * bytes_per_value


def kv_cache_bytes_per_token(config: ModelConfig, bytes_per_value: int = 4) -> int:
    """Bytes per token of context, at a context of block_size."""
    return kv_cache_bytes(config, config.block_size, bytes_per_value) // config.block_size


def _attention(config: ModelConfig, layer: int) -> int:
    d, kv = config.d_model, config.n_kv_head * config.head_dim
    count = 2 * d * d + 2 * d * kv
    count += (d + 2 * kv) * config.bias.qkv + d * config.bias.proj
    count += 2 * config.head_dim * config.qk_norm
    if config.attention_of(layer) == "linear":
        count += d * config.n_head + config.n_head
    return count


def _mlp(config: ModelConfig) -> int:
    inputs = 2 if config.mlp == "swiglu" else 1
    count = (inputs + 1) * config.d_model * config.d_ff
    return count + (inputs * config.d_ff + config.d_model) * config.bias.mlp


def _norm(config: ModelConfig) -> int:
    return config.d_model * (2 if config.norm == "layernorm" else 1)


def _mtp(config: ModelConfig) -> int:
    if not config.mtp:
        return 0
    block = _attention(config, config.n_layer - 1) + _mlp(config) + 2 * _norm(config)
    return block + 2 * config.d_model**2 + 3 * _norm(config)
