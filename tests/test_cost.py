"""Parameters and FLOPs to the last one."""

from __future__ import annotations

from itertools import product

import pytest

from conftest import model_config
from isoflop.model import cost
from isoflop.model.gpt import GPT

S1 = {"vocab_size": 256, "d_model": 384, "n_layer": 6, "n_head": 6, "n_kv_head": 6, "d_ff": 1024, "block_size": 256}
CPU = {"vocab_size": 256, "d_model": 128, "n_layer": 4, "n_head": 4, "n_kv_head": 4, "d_ff": 384, "block_size": 128}


@pytest.mark.parametrize(
    ("shape", "expected"),
    [(S1, 10_720_128), (S1 | {"n_kv_head": 2}, 9_540_480), (CPU, 885_888)],
    ids=["S1", "S1 with 2 KV heads", "CPU"],
)
def test_published_counts(shape: dict[str, int], expected: int) -> None:
    config = model_config(**shape)
    assert cost.parameters(config) == expected
    assert sum(p.numel() for p in GPT(config).parameters()) == expected


@pytest.mark.parametrize(("shape", "mega"), [(S1, 67.9), (CPU, 5.7)], ids=["S1", "CPU"])
def test_published_flops_per_token(shape: dict[str, int], mega: float) -> None:
    assert round(cost.flops_per_token(model_config(**shape)) / 1e6, 1) == mega


def test_flops_by_hand() -> None:
    # d 8, 1 layer, 2 heads of 4, 1 KV head, d_ff 16, T 4, V 10:
    # attention 2*64 + 2*8*4 = 192, MLP 3*8*16 = 384, norms 3*8 = 24, head matmul 80, attention term 6*1*4*8.
    config = model_config(vocab_size=10, d_model=8, n_layer=1, n_head=2, n_kv_head=1, d_ff=16, block_size=4)
    assert cost.flops_per_token(config) == 6 * (192 + 384 + 24 + 80) + 192


@pytest.mark.parametrize(
    ("kv", "qk_norm", "tied", "layers"), list(product([4, 2, 1], [False, True], [False, True], [1, 3]))
)
def test_table_adds_up_to_numel(kv: int, qk_norm: bool, tied: bool, layers: int) -> None:
    config = model_config(n_kv_head=kv, qk_norm=qk_norm, tie_embeddings=tied, n_layer=layers)
    model = GPT(config)
    counted = {name: 0 for name in cost.parameter_table(config)}
    for name, p in model.named_parameters():
        part = next(
            part
            for part, keys in {
                "embedding": ("embedding.",),
                "head": ("head.",),
                "norms": ("attention_norm.", "mlp_norm.", "final_norm."),
                "attention": (".attention.",),
                "mlp": (".mlp.",),
            }.items()
            if any(key in name for key in keys)
        )
        counted[part] += p.numel()
    assert cost.parameter_table(config) == counted


def test_flops_of_tied_and_untied_heads_agree_and_kv_cache_shrinks_with_its_heads() -> None:
    assert cost.flops_per_token(model_config()) == cost.flops_per_token(model_config(tie_embeddings=False))
    mha, mqa = (cost.kv_cache_bytes_per_token(model_config(n_kv_head=kv)) for kv in (4, 1))
    assert (mha, mqa) == (2 * 2 * 32 * 4, 2 * 2 * 8 * 4)
