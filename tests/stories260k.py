"""Reads the llama2.c v0 layout of the real checkpoint stories260K into this model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from conftest import model_config
from isoflop.model.gpt import GPT


def load(path: Path) -> GPT:
    """Seven int32, then float32 arrays, each stacked over layers, matrices as (out, in)."""
    dim, hidden, layers, heads, kv_heads, vocab, seq = np.fromfile(path, np.int32, 7).tolist()
    config = model_config(
        n_layer=layers,
        n_head=heads,
        n_kv_head=kv_heads,
        d_model=dim,
        d_ff=hidden,
        block_size=seq,
        vocab_size=vocab,
    )
    values = np.fromfile(path, np.float32, offset=28)
    kv_dim = kv_heads * dim // heads
    shapes = {
        "embedding.weight": (vocab, dim),
        "attention_norm.weight": (layers, dim),
        "attention.q.weight": (layers, dim, dim),
        "attention.k.weight": (layers, kv_dim, dim),
        "attention.v.weight": (layers, kv_dim, dim),
        "attention.out.weight": (layers, dim, dim),
        "mlp_norm.weight": (layers, dim),
        "mlp.gate.weight": (layers, hidden, dim),
        "mlp.down.weight": (layers, dim, hidden),
        "mlp.up.weight": (layers, hidden, dim),
        "final_norm.weight": (dim,),
    }
    state, at = {}, 0
    for name, shape in shapes.items():
        size = int(np.prod(shape))
        array = torch.from_numpy(values[at : at + size].reshape(shape).copy())
        at += size
        if name.startswith(("embedding", "final")):
            state[name] = array
        else:
            state |= {f"blocks.{i}.{name}": array[i] for i in range(layers)}
    assert at + seq * dim // heads == len(values), "only the two RoPE tables are left"
    model = GPT(config)
    model.load_state_dict(state)
    return model.eval()
