"""Parameters and FLOPs to the last one."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from conftest import model_config
from isoflop.config import BiasConfig
from isoflop.model import cost
from isoflop.model.gpt import GPT

S1 = {"vocab_size": 256, "d_model": 384, "n_layer": 6, "n_head": 6, "n_kv_head": 6, "d_ff": 1024, "block_size": 256}
CPU = {"vocab_size": 256, "d_model": 128, "n_layer": 4, "n_head": 4, "n_kv_head": 4, "d_ff": 384, "block_size": 128}
GPT_2 = {"norm": "layernorm", "positions": "learned", "mlp": "gelu"}
COURSE = GPT_2 | {
    "vocab_size": 65,
    "block_size": 64,
    "d_model": 128,
    "n_head": 4,
    "n_kv_head": 4,
    "n_layer": 4,
    "d_ff": 512,
    "bias": BiasConfig(qkv=False, proj=True, mlp=True),
    "tie_embeddings": False,
}
SMALL = GPT_2 | {
    "vocab_size": 50257,
    "block_size": 1024,
    "d_model": 768,
    "n_head": 12,
    "n_kv_head": 12,
    "n_layer": 12,
    "d_ff": 3072,
    "bias": BiasConfig(qkv=False, proj=True, mlp=True),
}
RELEASED = SMALL | {"bias": BiasConfig(qkv=True, proj=True, mlp=True)}


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        (S1, 10_720_128),
        (S1 | {"n_kv_head": 2}, 9_540_480),
        (CPU, 885_888),
        (COURSE, 816_640),
        (SMALL, 124_412_160),
        (SMALL | {"tie_embeddings": False}, 163_009_536),
        (RELEASED, 124_439_808),
    ],
    ids=["S1", "S1, 2 KV heads", "CPU", "course GPT", "GPT-2 small", "GPT-2 small untied", "GPT-2 as released"],
)
def test_published_counts(shape: dict[str, Any], expected: int) -> None:
    assert cost.parameters(model_config(**shape)) == expected


def test_the_course_gpt_splits_into_its_five_parts() -> None:
    table = cost.parameter_table(model_config(**COURSE))
    assert table["embedding"] == 16_512
    assert table["attention"] == 262_656
    assert table["mlp"] == 526_848
    assert table["block_norms"] == 2_048
    assert table["final_norm"] + table["head"] == 8_576
    assert sum(p.numel() for p in GPT(model_config(**COURSE)).parameters()) == 816_640


@pytest.mark.parametrize(("shape", "mega"), [(S1, 67.9), (CPU, 5.7)], ids=["S1", "CPU"])
def test_published_flops_per_token(shape: dict[str, int], mega: float) -> None:
    assert round(cost.flops_per_token(model_config(**shape)) / 1e6, 1) == mega


BY_HAND = {"vocab_size": 10, "d_model": 8, "n_layer": 1, "n_head": 2, "n_kv_head": 1, "d_ff": 16, "block_size": 4}


def test_flops_by_hand() -> None:
    # d 8, 1 layer, 2 heads of 4, 1 KV head, d_ff 16, T 4, V 10:
    # attention 2*64 + 2*8*4 = 192, MLP 3*8*16 = 384, norms 3*8 = 24, head matmul 80, attention term 6*1*4*8.
    assert cost.flops_per_token(model_config(**BY_HAND)) == 6 * (192 + 384 + 24 + 80) + 192


def test_flops_of_a_window_count_the_keys_it_leaves() -> None:
    # W 2 of T 4: a query sees W - W^2 / 2T = 1.5 keys where full attention sees T / 2 = 2.
    full, window = (cost.flops_per_token(model_config(**BY_HAND, window=[w])) for w in (0, 2))
    assert full - window == 12 * 8 * 2 - 12 * 8 * 3 // 2
    assert cost.flops_per_token(model_config(**BY_HAND, window=[4])) == full


def test_flops_of_a_linear_layer_count_its_chunk_and_its_memory() -> None:
    # d 8, 2 heads of 4. Parameters: the decay's 8*2 + 2 more. Of the chunk, as in full attention, half the keys, 12 d
    # each. The memory: k^T v and q S are 2*4^2 FLOPs per head each, 2 heads, times 3 for forward and backward: 384.
    shape = BY_HAND | {"block_size": 128}
    full, linear = (cost.flops_per_token(model_config(**shape, attention=[kind])) for kind in ("softmax", "linear"))
    assert linear - full == 6 * (8 * 2 + 2) + 12 * 8 * 32 // 2 + 384 - 12 * 8 * 128 // 2
    # They do not grow with the context.
    longer = cost.flops_per_token(model_config(**shape | {"block_size": 1024}, attention=["linear"]))
    assert longer == linear


def test_flops_of_mtp_count_its_module_and_the_second_head() -> None:
    # block 192 + 384 + 16, projection 2*64, 3 norms 24, head again 80, attention term again 192.
    plain, mtp = (cost.flops_per_token(model_config(**BY_HAND, mtp=n)) for n in (0, 1))
    assert mtp - plain == 6 * (192 + 384 + 16 + 128 + 24 + 80) + 192


def variants() -> list[dict[str, Any]]:
    rows = [
        {"n_kv_head": kv, "qk_norm": qk, "tie_embeddings": tied, "n_layer": layers}
        for kv, qk, tied, layers in product([4, 2, 1], [False, True], [False, True], [1, 3])
    ]
    biases = [BiasConfig(qkv=q, proj=p, mlp=m) for q, p, m in product([False, True], repeat=3)]
    rows += [{"bias": b, "mlp": mlp, "n_kv_head": 2} for b, mlp in product(biases, ["swiglu", "gelu", "relu2"])]
    rows += [{"norm": n, "positions": p} for n, p in product(["rmsnorm", "layernorm"], ["rope", "learned", "none"])]
    rows += [
        {"attention": ["linear"]},
        {"attention": ["softmax", "linear"], "n_layer": 3, "qk_norm": True, "n_kv_head": 2},
        {"mtp": 1},
        {"mtp": 1, "norm": "layernorm", "mlp": "gelu", "attention": ["softmax", "linear"]},
        {"window": [0, 4]},
    ]
    return rows


@pytest.mark.parametrize("changes", variants(), ids=str)
def test_table_adds_up_to_numel_part_by_part(changes: dict[str, Any]) -> None:
    config = model_config(**changes)
    counted = {name: 0 for name in cost.parameter_table(config)}
    for name, p in GPT(config).named_parameters():
        if name.startswith(("embedding", "position")):
            part = "embedding"
        elif name.startswith(("head", "mtp", "final_norm")):
            part = name.split(".")[0]
        else:
            part = name.split(".")[2]
            part = "block_norms" if part.endswith("norm") else part
        counted[part] += p.numel()
    assert cost.parameter_table(config) == counted


def test_flops_of_tied_and_untied_heads_agree() -> None:
    assert cost.flops_per_token(model_config()) == cost.flops_per_token(model_config(tie_embeddings=False))


def test_the_cache_shrinks_with_its_heads_a_window_and_a_linear_layer() -> None:
    mha, mqa = (cost.kv_cache_bytes_per_token(model_config(n_kv_head=kv)) for kv in (4, 1))
    assert (mha, mqa) == (2 * 2 * 32 * 4, 2 * 2 * 8 * 4)
    layer = 2 * 32 * 4  # bytes per token, layer and float32: keys and values
    assert cost.kv_cache_bytes(model_config(window=[0, 4]), 100) == layer * 100 + layer * 4
    assert cost.kv_cache_bytes(model_config(attention=["linear"]), 100) == 2 * 4 * 8 * 8 * 4
