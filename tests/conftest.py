"""Shared pieces: small models, params.yaml texts, the data that lies beside the repository."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from isoflop.config import BiasConfig, ModelConfig, TrainConfig
from isoflop.params import parse_params, resolve_arm

ROOT = Path(__file__).resolve().parent.parent
SHARED = ROOT.parent / "shared" / "data"

torch.set_num_threads(1)  # the models are tiny: a second thread costs more than it does


def model_config(**changes: Any) -> ModelConfig:
    """A small model; keyword arguments replace its values."""
    values: dict[str, Any] = {
        "n_layer": 2,
        "n_head": 4,
        "n_kv_head": 4,
        "d_model": 32,
        "d_ff": 64,
        "block_size": 16,
        "norm": "rmsnorm",
        "positions": "rope",
        "mlp": "swiglu",
        "attention": ["softmax"],
        "window": [0],
        "qk_norm": False,
        "bias": BiasConfig(qkv=False, proj=False, mlp=False),
        "dropout": 0.0,
        "mtp": 0,
        "mtp_weight": 0.3,
        "init": "gpt2",
        "tie_embeddings": True,
        "rope_theta": 10000.0,
        "norm_eps": 1e-5,
        "init_std": 0.02,
        "vocab_size": 61,
    }
    return ModelConfig(**values | changes)


def params_text(*replacements: tuple[str, str]) -> str:
    """The committed params.yaml with pieces of its text replaced, each of which must be there."""
    text = (ROOT / "params.yaml").read_text(encoding="utf-8")
    for old, new in replacements:
        assert old in text, f"params.yaml no longer holds {old!r}"
        text = text.replace(old, new, 1)
    return text


def train_config(*replacements: tuple[str, str]) -> TrainConfig:
    """The committed `train` section with pieces replaced."""
    return resolve_arm(parse_params(params_text(*replacements), "params.yaml"), "base").train


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Real excerpts and a real checkpoint, kept beside the repository and not part of it."""
    if not SHARED.is_dir():
        pytest.skip(f"{SHARED} is absent: real excerpts and the real checkpoint are kept beside the repository")
    return SHARED
