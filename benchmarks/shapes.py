"""What is measured: the shapes, in the words of params.yaml, and the modes of both sides."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A Llama-like decoder and its batch."""

    n_layer: int
    n_head: int
    d_model: int
    d_ff: int
    block_size: int
    batch_size: int
    vocab_size: int = 256

    def plain(self) -> dict[str, Any]:
        return asdict(self)


SHAPES = {
    "cpu": Shape(n_layer=4, n_head=4, d_model=128, d_ff=384, block_size=128, batch_size=16),
    "s1": Shape(n_layer=6, n_head=6, d_model=384, d_ff=1024, block_size=256, batch_size=16),
    "tiny": Shape(n_layer=1, n_head=2, d_model=32, d_ff=64, block_size=16, batch_size=4),  # for the test
}
# FLOPs of a run at this shape; `train` may choose by it what pays.
BUDGETS = {"cpu": 4.0e12, "s1": 5.6e15, "tiny": 1.0e9}


def common(shape: str, tokens: Path, **changes: int) -> dict[str, Any]:
    """What every worker at a shape is told."""
    return {"shape": SHAPES[shape].plain() | changes, "tokens": str(tokens), "flops": BUDGETS[shape]}


# (key in the results, what the worker needs to know)
PEER_MODES: dict[str, dict[str, Any]] = {
    f"{precision} {'compiled' if compiled else 'eager'} {attention}": {
        "side": "llama",
        "precision": precision,
        "compile": compiled,
        "attention": attention,
    }
    for precision in ("float32", "autocast", "pure-bf16")
    for compiled in (False, True)
    for attention in ("explicit", "sdpa")
}

OUR_MODES: dict[str, dict[str, Any]] = {
    f"{precision} {'compiled' if compiled else 'eager'}": {
        "side": "ours",
        "precision": precision,
        "compile": compiled,
        "optimizer": "adamw",
    }
    for precision in ("float32", "bf16")
    for compiled in (False, True)
}
DEFAULT = {"side": "ours"}  # precision, compile and optimizer as params.yaml says
